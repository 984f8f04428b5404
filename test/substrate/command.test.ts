import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { commandOf } from "./double/guest.ts";
import type { Command } from "./double/requests.ts";

const IMAGE = { entrypoint: ["/entry"], cmd: ["serve"] };

// hypeman 8853445, lib/instances/configdisk.go:53-60: each is the instance's own only where it has a word.
const CASES: readonly (readonly [what: string, command: Command, words: readonly string[]])[] = [
  ["is both where the instance names neither", {}, ["/entry", "serve"]],
  ["is both where the instance's lists are empty", { entrypoint: [], cmd: [] }, ["/entry", "serve"]],
  ["is the image's CMD after an entrypoint of the instance's own", { entrypoint: ["/agent"] }, ["/agent", "serve"]],
  ["is that also where cmd is empty", { entrypoint: ["/agent"], cmd: [] }, ["/agent", "serve"]],
  ["is the image's ENTRYPOINT before a cmd of the instance's own", { entrypoint: [], cmd: ["x"] }, ["/entry", "x"]],
  ["is the instance's alone where it names both", { entrypoint: ["/agent"], cmd: ["run"] }, ["/agent", "run"]],
];

describe("what the development substrate starts from an image with ENTRYPOINT and CMD", () => {
  for (const [what, command, words] of CASES) test(what, () => assert.deepEqual(commandOf(command, IMAGE), words));
});
