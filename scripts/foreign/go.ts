import { readFileSync } from "node:fs";
import { join } from "node:path";
import { buildGoTool, provideGo } from "../../test/fixtures/go-toolchain.ts";
import { messageOf } from "../../src/shared/errors.ts";
import { Unavailable } from "./suite.ts";

/** A suite that is a Go program. */
export interface GoSuite {
  /** The built program. */
  readonly program: string;
  /** As in go.mod. */
  readonly version: string;
}

/** Builds the tool of a module that `modules`, a folder of go.mod and go.sum, pins. @throws Unavailable */
export async function buildGoSuite(modules: string, module: string, tool: string): Promise<GoSuite> {
  const toolchain = await provideGo();
  if (typeof toolchain === "string") throw new Unavailable(toolchain);
  const pinned = readFileSync(join(modules, "go.mod"), "utf8");
  const [, version = "?"] =
    new RegExp(`^\\s*(?:require )?${RegExp.escape(module)} v([\\w.-]+)`, "m").exec(pinned) ?? [];
  return {
    program: await buildGoTool(toolchain, modules, tool).catch((error: unknown) => {
      throw new Unavailable(`${tool} was not built: ${messageOf(error)}`);
    }),
    version,
  };
}
