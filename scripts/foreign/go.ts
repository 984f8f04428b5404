import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { execa } from "execa";
import { buildGoTool, GO_ENVIRONMENT, type GoToolchain, provideGo } from "../../test/fixtures/go-toolchain.ts";
import { messageOf } from "../../src/shared/errors.ts";
import { Unavailable } from "./suite.ts";

/** A suite that is a Go program. */
export interface GoSuite {
  /** The built program. */
  readonly program: string;
  /** As in go.mod. */
  readonly version: string;
  /** The folder of its module's sources. */
  readonly sources: () => Promise<string>;
}

/** Builds the tool of a module that the go.mod of a folder pins. @throws Unavailable */
export async function buildGoSuite(folder: string, module: string, tool: string): Promise<GoSuite> {
  const toolchain = await provideGo();
  if (typeof toolchain === "string") throw new Unavailable(toolchain);
  const pinned = readFileSync(join(folder, "go.mod"), "utf8");
  const [, version = "?"] =
    new RegExp(`^\\s*(?:require )?${RegExp.escape(module)} v([\\w.-]+)`, "m").exec(pinned) ?? [];
  const program = await buildGoTool(toolchain, folder, tool).catch((error: unknown) => {
    throw new Unavailable(`${tool} was not built: ${messageOf(error)}`);
  });
  return { program, version, sources: () => sourcesOf(toolchain, dirname(program), module) };
}

/** Where Go keeps them. `built` has the go.mod and the sums. */
async function sourcesOf({ go }: GoToolchain, built: string, module: string): Promise<string> {
  const { stdout } = await execa(go, ["list", "-m", "-f", "{{.Dir}}", module], { cwd: built, env: GO_ENVIRONMENT });
  return stdout;
}
