import { chmod, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { execa } from "execa";
import type { RunningAgent } from "../../fixtures/agent.ts";
import { GUESTCTL, guestctlVariables, startIssuedAgent } from "../../node/guestctl/guestctl.ts";

const DOCUMENT = join(import.meta.dirname, "../../../docs/node/guestctl.md");
/** An emergency brake. */
const LINE_LIMIT_MS = 400_000;

/** An agent, a folder of the host to work in with `srv`, the guest's /srv, and a PATH that has guestctl. */
export class Guest implements AsyncDisposable {
  readonly folder: string;
  readonly env: Readonly<Record<string, string>>;
  readonly #agent: RunningAgent;

  private constructor(agent: RunningAgent, folder: string) {
    this.#agent = agent;
    this.folder = folder;
    this.env = {
      ...guestctlVariables(agent),
      PATH: `${folder}/bin:${process.env["PATH"] ?? "/usr/bin:/bin"}`,
      HOME: folder,
      LANG: "C.UTF-8",
    };
  }

  static async start(): Promise<Guest> {
    const folder = await mkdtemp(join(tmpdir(), "foreign-guest-"));
    const guest = new Guest(await startIssuedAgent(), folder);
    const [file, ...args] = GUESTCTL;
    const guestctl = [file, ...args].map((word) => `'${word.replaceAll("'", String.raw`'\''`)}'`).join(" ");
    await guest.shell("mkdir bin srv");
    await writeFile(join(folder, "bin/guestctl"), `#!/bin/sh\nexec ${guestctl} "$@"\n`);
    await chmod(join(folder, "bin/guestctl"), 0o755);
    return guest;
  }

  /** Runs a script in the folder and returns its output. @throws Error with all of its output, if it fails */
  async shell(script: string): Promise<string> {
    const { stdout, exitCode, all } = await execa("sh", ["-ec", script], {
      cwd: this.folder,
      env: this.env,
      extendEnv: false,
      all: true,
      reject: false,
      timeout: LINE_LIMIT_MS,
      stdin: "ignore",
    });
    if (exitCode !== 0) throw new Error(`exit ${exitCode} of ${script}: ${all}`);
    return stdout;
  }

  /** The lines of a tool's chapter in the documentation, with /srv in this folder. @throws Error if there are none */
  async documented(tool: string): Promise<readonly string[]> {
    const [, block] = new RegExp(`^### ${tool}\\n[^]*?^\`\`\`sh\\n([^]*?)^\`\`\``, "m").exec(
      await readFile(DOCUMENT, "utf8"),
    ) ?? [undefined, ""];
    if (block === undefined || block === "") throw new Error(`${DOCUMENT} has no lines for ${tool}`);
    return block.trimEnd().replaceAll("/srv/", `${this.folder}/srv/`).split("\n");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#agent[Symbol.asyncDispose]();
    await rm(this.folder, { recursive: true, force: true });
  }
}
