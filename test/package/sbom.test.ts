import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { standaloneDirectory } from "../fixtures/bundles.ts";

/* The bill of materials, judged by package-lock.json and by what is shipped; sbom.nightly.ts has its schema. */

const ROOT = join(import.meta.dirname, "../..");
interface Component {
  readonly type: string;
  readonly name: string;
  readonly version?: string;
  readonly purl?: string;
  readonly hashes?: readonly { readonly alg: string; readonly content: string }[];
  readonly components?: readonly Component[];
}

interface Bill {
  readonly serialNumber: string;
  readonly metadata: { readonly timestamp: string; readonly component: Component };
  readonly components: readonly Component[];
}

describe("the bill of materials", () => {
  const directory = standaloneDirectory();
  const text = readFileSync(join(directory, "sbom.cdx.json"), "utf8");
  const bill = JSON.parse(text) as Bill;

  test("the bill of materials names Node, OpenSSL, the loader and libc", () => {
    const [node] = bill.components;
    assert.deepEqual([node?.name, node?.version], [`node-linux-${process.arch}`, process.versions.node]);
    for (const name of ["node", "openssl", "v8"] as const) {
      const found = node?.components?.find((component) => component.name === name);
      assert.equal(found?.version, process.versions[name]);
    }
    const libc = bill.components.find(({ name }) => name === "libc6" || name === "libc6-arm64-cross");
    const files = libc?.components?.map(({ name }) => name) ?? [];
    assert.ok(files.includes("lib/libc.so.6") && files.some((name) => name.startsWith("lib/ld-linux-")), files.join());
  });

  test("the bill of materials has every shipped program's and library's checksum", () => {
    const lines = readFileSync(join(directory, "SHA256SUMS"), "utf8").matchAll(/^(\w+) {2}(.+)$/gm);
    const sums = new Map(Array.from(lines, ([, sum = "", name = ""]) => [name, sum] as const));
    const files = [bill.metadata.component, ...bill.components]
      .flatMap(({ components = [] }) => components)
      .filter(({ type }) => type === "file");
    const executables = [...sums.keys()].filter((name) => /^guest-agent$|^agent\.(?:bin|node)$|\.so\.\d/.test(name));
    assert.deepEqual(files.map(({ name }) => name).toSorted(), executables.toSorted());
    for (const { name, hashes } of files) assert.equal(hashes?.[0]?.content, sums.get(name), name);
  });

  test("the bill of materials has a content-based serial number and a fixed timestamp", () => {
    const {
      bomFormat: _format,
      specVersion: _version,
      serialNumber,
      ...content
    } = JSON.parse(text) as Record<string, unknown>;
    const digest = createHash("sha256").update(JSON.stringify(content)).digest("hex");
    assert.match(
      String(serialNumber),
      /^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
    );
    const hex = String(serialNumber).slice("urn:uuid:".length).replaceAll("-", "");
    assert.deepEqual([hex.slice(0, 12), hex.slice(17)], [digest.slice(0, 12), digest.slice(17, 32)]);
    assert.equal(bill.metadata.timestamp, "1970-01-01T00:00:00Z");
  });

  test("the bill of materials lists npm packages at locked versions, with dependencies", () => {
    const { packages } = JSON.parse(readFileSync(join(ROOT, "package-lock.json"), "utf8")) as {
      readonly packages: Readonly<
        Record<string, { readonly version: string; readonly dependencies?: Readonly<Record<string, string>> }>
      >;
    };
    const ours = new Map(
      bill.components
        .filter(({ purl = "" }) => purl.startsWith("pkg:npm/"))
        .map(({ name, version }) => [name, version] as const),
    );
    assert.ok(ours.size >= 2);
    for (const [name, version] of ours) {
      const locked = packages[`node_modules/${name}`];
      assert.equal(locked?.version, version, name);
      for (const needed of Object.keys(locked?.dependencies ?? {})) assert.ok(ours.has(needed), `${name}: ${needed}`);
    }
  });
});
