import assert from "node:assert/strict";
import { lstat, mkdir, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { Readable } from "node:stream";
import { describe, it } from "node:test";
import { type GuestClient, GuestError } from "../../../src/node/client/index.ts";
import { downloadTree } from "../../../src/node/guestctl/copy/download.ts";
import { CopyReport, Progress } from "../../../src/node/guestctl/copy/report.ts";
import { uploadFile } from "../../../src/node/guestctl/copy/upload.ts";
import { startAgent } from "../../fixtures/agent.ts";
import { testFolder } from "../../fixtures/files.ts";
import { clientOf } from "../../fixtures/guest-client.ts";

/** The client, but something in the sandbox acts right after a failed write. */
function swappingAfterFailure(client: GuestClient, swap: () => Promise<void>): GuestClient {
  const writeFileThen: GuestClient["writeFile"] = async (...args) => {
    try {
      return await client.writeFile(...args);
    } catch (error) {
      await swap();
      throw error;
    }
  };
  return new Proxy(client, {
    get: (target, name) => {
      if (name === "writeFile") return writeFileThen;
      const value: unknown = Reflect.get(target, name, target);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
}

describe("a file on its way into a folder of the sandbox", () => {
  it("stays in that folder: a refused write is never repeated without beneath", async () => {
    await using folder = await testFolder();
    await using agent = await startAgent();
    const client = clientOf(agent);
    try {
      await writeFile(folder.at("local"), "of the host");
      await writeFile(folder.at("outside"), "of another");
      await mkdir(folder.at("named"));
      const target = folder.at("named/file");
      // Dangling, with a slash at its end: the agent refuses the path, which names no file.
      await symlink("gone/", target);
      const swapping = swappingAfterFailure(client, async () => {
        await rm(target);
        await symlink(folder.at("outside"), target);
      });
      const parts = {
        client: swapping,
        progress: new Progress(process.stderr, "", undefined),
        report: new CopyReport(),
        host: process,
        makesParents: false,
      };
      const copying = uploadFile(
        parts,
        folder.at("local"),
        await lstat(folder.at("local")),
        target,
        folder.at("named"),
      );
      await assert.rejects(copying, (error) => error instanceof GuestError && error.reason === "INVALID_FIELD");
      assert.equal(await readFile(folder.at("outside"), "utf8"), "of another");
    } finally {
      client.close();
    }
  });
});

describe("a folder on its way out of a hostile sandbox", () => {
  it("stays where it goes to: a name that climbs is refused, and no link is followed", async () => {
    for (const [names, message] of [
      [["../evil"], /leads out of the folder/],
      [["/evil"], /leads out of the folder/],
      [["link", "link/evil"], /is in the way: it is no folder/],
    ] as const) {
      await using folder = await testFolder();
      await using agent = await startAgent();
      using client = clientOf(agent);
      await mkdir(folder.at("outside"));
      await mkdir(folder.at("sandbox"));
      await writeFile(folder.at("sandbox/evil"), "of the sandbox");
      await symlink(folder.at("outside"), folder.at("sandbox/link"));
      const told = names.map((name) => {
        const isLink = name === "link";
        const linkName = Buffer.from(isLink ? folder.at("outside") : "");
        const head = { name: Buffer.from(name), linkName, mode: 0o644, modifiedSeconds: 0 };
        const content = Readable.from(isLink ? [] : [Buffer.from("of the sandbox")]);
        return { ...head, type: isLink ? "symlink" : "file", sizeBytes: isLink ? 0 : 14, content };
      });
      const hostile = new Proxy(client, {
        get: (target, name) => {
          if (name === "readTree") return () => Readable.from(told);
          const value: unknown = Reflect.get(target, name, target);
          return typeof value === "function" ? (value.bind(target) as unknown) : value;
        },
      });
      const progress = new Progress(process.stderr, "", undefined);
      const parts = { client: hostile, progress, report: new CopyReport(), host: process, makesParents: false };
      await assert.rejects(downloadTree(parts, folder.at("sandbox"), folder.at("here")), message);
      assert.deepEqual(await readdir(folder.at("outside")), []);
      assert.deepEqual((await folder.names()).toSorted(), ["here", "outside", "sandbox"]);
    }
  });
});
