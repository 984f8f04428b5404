import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { execa } from "execa";
import { standaloneDirectory } from "../fixtures/bundles.ts";
import { pythonPackages } from "../fixtures/toolchains.ts";

const VALIDATOR = "cyclonedx-python-lib[json-validation]==11.12.0";
const VALIDATE = `
import sys
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
problem = JsonStrictValidator(SchemaVersion.V1_6).validate_str(sys.stdin.read())
print("valid" if problem is None else repr(problem)[:2000])
`;
const TIMEOUT_MS = 400_000;

async function validated(json: string): Promise<string> {
  const env = { PYTHONPATH: await pythonPackages(VALIDATOR) };
  return (await execa("python3", ["-c", VALIDATE], { env, input: json, timeout: TIMEOUT_MS })).stdout;
}

test("CycloneDX's own library validates the bill of materials strictly against version 1.6", async () => {
  const text = readFileSync(join(standaloneDirectory(), "sbom.cdx.json"), "utf8");
  assert.equal(await validated(text), "valid");
  assert.match(await validated(text.replace('"type": "framework"', '"type": "frame"')), /'frame'/);
  assert.match(await validated(text.replace(/urn:uuid:.{8}/, "urn:uuid:")), /does not match/);
});
