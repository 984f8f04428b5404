import { createHash } from "node:crypto";
import { existsSync, globSync, readFileSync } from "node:fs";
import { mkdir, rm, writeFile } from "node:fs/promises";
import { basename, join } from "node:path";
import { Readable } from "node:stream";
import { pathToFileURL } from "node:url";
import { createFileRegistry, type DescService, fromBinary, type Registry } from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { execa } from "execa";
import type * as Library from "../../src/node/client/index.ts";
import { machinePath } from "../../scripts/machine/npm.ts";
import { KEPT } from "../../scripts/release/keep.ts";
import type { AgentCommand } from "../fixtures/agent.ts";
import type { GuestClient, NewTreeEntry, WriteFileOptions } from "../../src/node/client/index.ts";
import { HookKind } from "../../src/shared/gen/svc/guest/v1alpha1/hooks_pb.ts";
import { cachedDirectory } from "../fixtures/toolchains.ts";

const ROOT = join(import.meta.dirname, "../..");
const INSTALL = "install --no-save --ignore-scripts --no-audit --no-fund --prefer-offline".split(" ");
const INSTALL_TIMEOUT_MS = 400_000;

/** What compat/ keeps of a release. */
export interface KeptRelease {
  readonly version: string;
  readonly directory: string;
  readonly schema: Registry;
  /** The packed client library; undefined for a release before there was one to keep. */
  readonly client: string | undefined;
}

/** Some release's client library, typed by the parts of this tree's that it has. */
export type ClientLibrary = Pick<typeof Library, "connect" | "GuestError">;

/** All kept releases, the oldest first. */
export function keptReleases(): readonly KeptRelease[] {
  const directories = globSync("compat/v*", { cwd: ROOT }).map((directory) => join(ROOT, directory));
  return directories
    .toSorted((left, right) => left.localeCompare(right, "en", { numeric: true }))
    .map((directory) => {
      const files = fromBinary(FileDescriptorSetSchema, readFileSync(join(directory, KEPT.schema)));
      const client = join(directory, KEPT.client);
      return {
        version: basename(directory).slice(1),
        directory,
        schema: createFileRegistry(files),
        client: existsSync(client) ? client : undefined,
      };
    });
}

/** Names of all methods of a schema that a node calls, such as "GuestAgent/Health". */
export function methodsOf(schema: Registry | readonly DescService[]): readonly string[] {
  return Array.from(schema)
    .filter((type) => type.kind === "service")
    .filter(({ name }) => name !== "WorkloadService")
    .flatMap(({ name, methods }) => methods.map((method) => `${name}/${method.name}`))
    .toSorted();
}

/** Installs a kept client library as its users do, with the packages of its time, and loads it. */
export async function loadKeptClient(version: string, tarball: string): Promise<ClientLibrary> {
  const digest = createHash("sha256").update(readFileSync(tarball)).digest("hex").slice(0, 16);
  const directory = await cachedDirectory(`client-${version}-${digest}`, async (target) => {
    await writeFile(join(target, "package.json"), '{ "private": true }');
    await npm(target, [...INSTALL, tarball]);
  });
  const entry = join(directory, "node_modules/guest-agent-client/lib/node/client/index.js");
  return (await import(pathToFileURL(entry).href)) as ClientLibrary;
}

/**
 * The commit of a release, by its tag or as it was kept. It is undefined where this repository has neither: a clone
 * without history, or no clone.
 */
export async function commitOf({ version, directory }: KeptRelease): Promise<string | undefined> {
  const kept = join(directory, KEPT.commit);
  const names = [`refs/tags/v${version}`, ...(existsSync(kept) ? [readFileSync(kept, "utf8").trim()] : [])];
  for (const name of names) {
    const { stdout, failed } = await execa("git", ["rev-parse", "--quiet", "--verify", `${name}^{commit}`], {
      cwd: ROOT,
      reject: false,
    });
    if (!failed) return stdout;
  }
  return undefined;
}

/** Builds the agent of a commit, with the packages and the Node of its time. */
export async function agentOf(commit: string): Promise<AgentCommand> {
  const node = join("node_modules", `node-linux-${process.arch}`);
  const directory = await cachedDirectory(`agent-${commit}`, async (target) => {
    const archive = join(target, "sources.tar");
    await execa("git", ["archive", "--format=tar", "-o", archive, commit, "--", ...SOURCES], { cwd: ROOT });
    await execa("tar", ["-xf", archive, "-C", target]);
    await rm(archive);
    await npm(target, [...INSTALL, "--omit=dev", "--include=optional"]);
    await mkdir(join(target, "dist"), { recursive: true });
    await execa(join(target, node, "bin/node"), ["scripts/build-native.ts"], { cwd: target });
    // Headers take 56 of 152 MB.
    await rm(join(target, node, "include"), { recursive: true });
  });
  return [join(directory, node, "bin/node"), join(directory, "src/agent/main.ts")];
}

/** Sources that an agent is started from. */
const SOURCES = ["src", "scripts", "package.json", "package-lock.json"];

async function npm(directory: string, args: readonly string[]): Promise<void> {
  const env = { PATH: machinePath(), NODE_OPTIONS: "" };
  await execa("npm", args, { cwd: directory, env, timeout: INSTALL_TIMEOUT_MS });
}

/** Methods of 0.2.0 that have another name or other arguments in 0.3.0; CHANGELOG.md has the table. */
interface Client020 {
  run(command: object, input?: unknown): Promise<{ readonly code: number }>;
  writeFile(path: string, content: unknown, file: object): Promise<unknown>;
  symlink(path: string, target: string): Promise<void>;
  endExec(name: string, end: object): Promise<unknown>;
  connect(port: number): unknown;
}

/** Methods of 0.3.0 that have another name or other arguments by now; CHANGELOG.md has the table. */
interface Client030 {
  run(command: object, options: object): Promise<{ readonly stdout: Buffer; readonly stderr: Buffer }>;
  exec(command: object, options?: object): unknown;
  listExecs(): Promise<unknown>;
  endExec(name: string, end: object): Promise<unknown>;
  signalExec(name: string, signal: unknown): Promise<void>;
  readFile(path: string): { bytes(): Promise<Buffer>; text(): Promise<string> };
  writeFile(path: string, content: unknown, options?: object): unknown;
  statPath(path: string): unknown;
  list(path: string, options?: object): AsyncIterable<{ readonly attributes?: object }>;
  mkdir(path: string, options: object): unknown;
  symlink(target: string, path: string): unknown;
  rename(path: string, newPath: string): unknown;
  setAttributes(path: string, attributes: object): unknown;
  remove(path: string, options?: object): unknown;
  writeTree(path: string, entries: unknown, options?: object): unknown;
  readTree(path: string): unknown;
  watchDirectory(path: string, options?: object): unknown;
  openTunnel(target: number): unknown;
  waitForPort(port: number): unknown;
  listPorts(): unknown;
  watchPorts(): unknown;
  runHook(hook: { readonly kind: HookKind }): unknown;
  runRestoreDuties(duties: object): unknown;
  restore(options: object): unknown;
}

type Renamed = Readonly<Record<string, unknown>>;

/** A client of an earlier release by this tree's names, with its own code behind them; a newer client as it is. */
export function byTodaysNames(client: GuestClient): GuestClient {
  if ("commands" in client) return client;
  const earlier = ("openTunnel" in client ? client : by030sNames(client)) as unknown as Client030;
  const start = (args: readonly string[], options: object = {}): unknown => earlier.exec({ args, ...options });
  return renaming(earlier as unknown as GuestClient, {
    run: async (args: readonly string[], { input, ...command }: { readonly input?: unknown } = {}) => {
      const { stdout, stderr, ...result } = await earlier.run({ args, ...command }, { input });
      return { ...result, stdout: stdout.toString(), stderr: stderr.toString() };
    },
    start,
    commands: {
      list: () => earlier.listExecs(),
      end: (name: string, end: object) => earlier.endExec(name, end),
      signal: (name: string, signal: unknown) => earlier.signalExec(name, signal),
    },
    files: filesOf(earlier),
    ports: {
      connect: (target: number) => earlier.openTunnel(target),
      waitFor: (port: number) => earlier.waitForPort(port),
      list: () => earlier.listPorts(),
      watch: () => earlier.watchPorts(),
    },
    snapshots: {
      prepare: () => earlier.runHook({ kind: HookKind.PRE_SNAPSHOT }),
      hook: () => earlier.runHook({ kind: HookKind.POST_RESTORE }),
      duties: (duties: object) => earlier.runRestoreDuties(duties),
      completeRestore: (options: object) => earlier.restore(options),
    },
  });
}

function filesOf(earlier: Client030): Renamed {
  return {
    readFile: (path: string, encoding?: string) =>
      encoding === undefined ? earlier.readFile(path).bytes() : earlier.readFile(path).text(),
    writeFile: (path: string, content: unknown, options?: object) => earlier.writeFile(path, content, options),
    stat: (path: string) => earlier.statPath(path),
    async *opendir(path: string, options?: object) {
      for await (const { attributes, ...entry } of earlier.list(path, options)) yield { ...attributes, ...entry };
    },
    mkdir: (path: string, { recursive, ...options }: { readonly recursive?: boolean } = {}) =>
      earlier.mkdir(path, { ...options, parents: recursive }),
    symlink: (target: string, path: string) => earlier.symlink(target, path),
    rename: (path: string, newPath: string) => earlier.rename(path, newPath),
    setAttributes: (path: string, attributes: object) => earlier.setAttributes(path, attributes),
    rm: (path: string, options?: object) => earlier.remove(path, options),
    writeTree: (path: string, entries: readonly NewTreeEntry[], options?: object) =>
      earlier.writeTree(path, entries.map(entry030Of), options),
    readTree: (path: string) => earlier.readTree(path),
    watch: (path: string, options?: object) => earlier.watchDirectory(path, options),
  };
}

/** A small file as an entry of 0.3.0. */
function entry030Of({ type, name, mode, mtime, content }: NewTreeEntry): object {
  const bytes = Buffer.from(typeof content === "string" ? content : "");
  const head = { type, name: Buffer.from(name), linkTarget: Buffer.alloc(0), mode, size: bytes.length };
  return { ...head, mtimeSeconds: Number(mtime) / 1_000, content: Readable.from([bytes]) };
}

function by030sNames(client: GuestClient): GuestClient {
  const earlier = client as unknown as Client020;
  return renaming(client, {
    run: async (command: object, { input }: { readonly input?: unknown } = {}) => {
      const { code, ...rest } = await earlier.run(command, input);
      return { ...rest, exitCode: code };
    },
    writeFile: (path: string, content: unknown, { parents, ...file }: WriteFileOptions = {}) =>
      earlier.writeFile(path, content, { ...file, ...(parents !== undefined && { createParents: parents }) }),
    symlink: (target: string, path: string) => earlier.symlink(path, target),
    endExec: (name: string, { killSignal, ...end }: { killSignal?: unknown } = {}) =>
      earlier.endExec(name, { ...end, ...(killSignal !== undefined && { signal: killSignal }) }),
    openTunnel: (port: number) => earlier.connect(port),
  });
}

function renaming(client: GuestClient, renamed: Renamed): GuestClient {
  return new Proxy(client, {
    get: (target, name) => {
      const value: unknown = renamed[String(name)] ?? Reflect.get(target, name, target);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
}
