import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { addon } from "../../fixtures/spawning.ts";

const SOURCES = join(import.meta.dirname, "../../../src/agent/native");
const INTERFACE = /^export interface Addon \{\n(.*?)^\}/ms.exec(readFileSync(join(SOURCES, "addon.ts"), "utf8"))?.[1];
const DESCRIBED = [...(INTERFACE ?? "").matchAll(/^ {2}(?:readonly )?(\w+)[(:](.*?)[;)]/gms)].map(
  ([, name = "", parameters = ""]) => ({ name, parameters }),
);

test("the addon exports what its description in TypeScript names, and nothing else", () => {
  assert.deepEqual(Object.keys(addon).toSorted(), DESCRIBED.map(({ name }) => name).toSorted());
});

test("functions of numbers take as many in C as they are described with", () => {
  const header = readFileSync(join(SOURCES, "addon/addon.h"), "utf8");
  const inC = new Map([...header.matchAll(/F\("(\w+)", \w+, (\d),/g)].map(([, name, count]) => [name, Number(count)]));
  assert.ok(inC.size > 20, `${inC.size} functions of numbers found`);
  const described = DESCRIBED.filter(({ name }) => inC.has(name)).map(({ name, parameters }) => [
    name,
    parameters.split(",").filter((parameter) => parameter.trim() !== "").length,
  ]);
  assert.deepEqual(new Map(described as [string, number][]), inC);
});
