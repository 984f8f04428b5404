import { join } from "node:path";
import { buildGoTool, provideGo } from "../fixtures/go-toolchain.ts";
import type { ClientProgram } from "./program.ts";

/** The client of test/clients/go, over grpc-go. */
export const goClient: ClientProgram = {
  make: "Go (grpc-go)",
  provide: async () => {
    const toolchain = await provideGo();
    if (typeof toolchain === "string") return toolchain;
    return [await buildGoTool(toolchain, join(import.meta.dirname, "go"), ".")];
  },
};
