import { rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { execa } from "execa";
import type { Cases } from "../cases.ts";

/** How a program finds the library. */
interface Resolution {
  readonly name: string;
  readonly module: string;
  readonly moduleResolution: string;
  readonly extensions: readonly string[];
}

const RESOLUTIONS: readonly Resolution[] = [
  { name: "node10", module: "commonjs", moduleResolution: "node10", extensions: ["ts"] },
  { name: "node16", module: "node16", moduleResolution: "node16", extensions: ["ts", "mts", "cts"] },
  { name: "nodenext", module: "nodenext", moduleResolution: "nodenext", extensions: ["ts", "mts", "cts"] },
  { name: "bundler", module: "esnext", moduleResolution: "bundler", extensions: ["ts", "mts", "cts"] },
];

/** One of TypeScript's releases. */
export interface Compiler {
  readonly name: string;
  /** The program tsc. */
  readonly tsc: string;
  /** It knows the resolution of Node 10: TypeScript 7 does not. */
  readonly knowsNode10: boolean;
}

/** Programs of one compiler and resolution: one for each kind of file. */
export interface Consumers {
  readonly compiler: Compiler;
  readonly resolution: Resolution;
}

/** Every compiler with each resolution that it knows. */
export function consumers(compilers: readonly Compiler[]): Consumers[] {
  return compilers.flatMap((compiler) =>
    RESOLUTIONS.filter(({ name }) => name !== "node10" || compiler.knowsNode10).map((resolution) => ({
      compiler,
      resolution,
    })),
  );
}

const PROGRAM = `import { connect, GuestError, type Health } from "guest-agent-client";
import { SandboxError, type SandboxInfo } from "guest-agent-client/sandboxes";
import { startTestAgent } from "guest-agent-client/testing";
export async function main(sandbox: SandboxInfo): Promise<number> {
  const client = connect({ address: "unix:/x", token: "t" });
  const health: Health = await client.health();
  const at: Date | undefined = health.guestTime;
  const { stdout } = await client.run({ args: ["true"] });
  console.log(at, stdout.length, GuestError, SandboxError, startTestAgent, sandbox.name);
  for await (const entry of client.list("/")) console.log(entry.name);
  return health.readyCmdExit;
}
`;
/** The library's types are there: without them this would pass. */
const WRONG = `import { connect } from "guest-agent-client";
export const wrong: number = connect({ address: "unix:/x", token: "t" });
`;

/** Compiles the programs in the folder, strictly, and has a case for each of them. */
export async function compile(folder: string, { compiler, resolution }: Consumers, cases: Cases): Promise<void> {
  const said = await complaints(folder, compiler, resolution);
  for (const extension of resolution.extensions)
    await cases.check(`${compiler.name}, ${resolution.name}, .${extension}`, () => {
      const [right, wrong] = [`right.${extension}(`, `wrong.${extension}(`];
      const problems = said.filter((line) => line.startsWith(right) || !/^(?:right|wrong)\./.test(line));
      if (problems.length > 0) throw new Error(problems.join("\n"));
      if (!said.some((line) => line.startsWith(`${wrong}2,`) && line.includes("TS2322: Type 'GuestClient'")))
        throw new Error("a wrong type passes");
    });
}

/** What the compiler says of the programs and of the library; other packages' types need a compiler after 5.4. */
async function complaints(folder: string, compiler: Compiler, resolution: Resolution): Promise<string[]> {
  const compilerOptions = {
    target: "es2022",
    lib: ["es2023", "esnext.disposable"],
    module: resolution.module,
    moduleResolution: resolution.moduleResolution,
    types: ["node"],
    strict: true,
    exactOptionalPropertyTypes: true,
    noUncheckedIndexedAccess: true,
    noPropertyAccessFromIndexSignature: true,
    noEmit: true,
  };
  const project = join(folder, "consumer.json");
  const programs = resolution.extensions.flatMap((extension) => [
    { file: `right.${extension}`, content: PROGRAM },
    { file: `wrong.${extension}`, content: WRONG },
  ]);
  for (const { file, content } of programs) await writeFile(join(folder, file), content);
  await writeFile(project, JSON.stringify({ compilerOptions, files: programs.map(({ file }) => file) }));
  const { stdout } = await execa(compiler.tsc, ["-p", project, "--pretty", "false"], { cwd: folder, reject: false });
  for (const { file } of programs) await rm(join(folder, file));
  const lines = stdout.split("\n").filter((line) => line.includes("error TS"));
  return lines.filter((line) => !/^(?:\.\.\/)*node_modules\/(?!guest-agent-client\/)/.test(line));
}
