import { readFileSync } from "node:fs";
import { join } from "node:path";
import { execa } from "execa";
import { buildGoTool, GO_ENVIRONMENT, provideGo } from "../fixtures/toolchains.ts";

/** A suite that is a Go program. */
export interface GoSuite {
  /** The built program. */
  readonly program: string;
  /** As in go.mod. */
  readonly version: string;
  /** Finds the module's sources. */
  readonly sources: () => Promise<string>;
}

/** The go.mod and go.sum that pin the tools that others wrote. */
export const GO_TOOLS: string = import.meta.dirname;

/** Builds the tool of a pinned module; or says why it cannot be had. */
export async function buildGoSuite(module: string, tool: string): Promise<GoSuite | string> {
  const toolchain = await provideGo();
  if (typeof toolchain === "string") return toolchain;
  const pinned = readFileSync(join(GO_TOOLS, "go.mod"), "utf8");
  const [, version = "?"] =
    new RegExp(`^\\s*(?:require )?${RegExp.escape(module)} v([\\w.-]+)`, "m").exec(pinned) ?? [];
  const program = await buildGoTool(toolchain, GO_TOOLS, tool);
  const sources = async (): Promise<string> => {
    const words = ["mod", "download", "-json", module];
    const { stdout } = await execa(toolchain.go, words, { cwd: GO_TOOLS, env: GO_ENVIRONMENT });
    return (JSON.parse(stdout) as { readonly Dir: string }).Dir;
  };
  return { program, version, sources };
}
