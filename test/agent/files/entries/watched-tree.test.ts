import assert from "node:assert/strict";
import { test } from "node:test";
import { type Change, Changes } from "../../../../src/agent/files/entries/changes.ts";
import type { Found, WatchedDirectory } from "../../../../src/agent/files/entries/watched-directory.ts";
import { WatchedTree } from "../../../../src/agent/files/entries/watched-tree.ts";
import { IN, type InotifyEvent } from "../../../../src/agent/files/open/inotify.ts";
import { type Random, seededRandom } from "../../../fixtures/seeded-random.ts";

/** A file or directory. */
class Inode {
  readonly children: Map<string, Inode> | undefined;
  parent: Inode | undefined;
  name = "";
  version = 0;
  watch: number | undefined;

  constructor(isDirectory: boolean) {
    this.children = isDirectory ? new Map<string, Inode>() : undefined;
  }
}

/**
 * A file system with one instance of inotify(7), which queues what Linux does: the directory that an entry is in gets
 * its events; a renamed one keeps its watch; a removed one first ends its own watch (fs/notify/inotify, vfs_rmdir of
 * fs/namei.c). A directory may be renamed and changed between any two events that are read, and between any two
 * checks.
 */
class Kernel {
  readonly root = new Inode(true);
  readonly outside = new Inode(true);
  readonly queue: InotifyEvent[] = [];
  readonly #watched = new Map<number, Inode>();
  #cookies = 0;
  #watches = 0;
  #versions = 0;

  /** Drops what is queued, as after more than fs.inotify.max_queued_events. */
  overflow(): void {
    if (this.queue.length > 0) this.queue.splice(0, this.queue.length, event(-1, IN.Q_OVERFLOW, 0, ""));
  }

  make(parent: Inode, name: string, isDirectory: boolean): void {
    if (parent.children?.has(name) !== false) return;
    const inode = new Inode(isDirectory);
    inode.version = this.#versions += 1;
    this.#link(inode, parent, name);
    this.#notify(inode, IN.CREATE);
  }

  write(inode: Inode): void {
    if (inode.children !== undefined || inode.parent === undefined) return;
    inode.version = this.#versions += 1;
    this.#notify(inode, IN.MODIFY);
    this.#notify(inode, IN.CLOSE_WRITE);
  }

  remove(inode: Inode): void {
    for (const child of inode.children?.values() ?? []) this.remove(child);
    if (inode.watch !== undefined) {
      this.queue.push(event(inode.watch, IN.IGNORED, 0, ""));
      this.#watched.delete(inode.watch);
    }
    this.#notify(inode, IN.DELETE);
    inode.parent?.children?.delete(inode.name);
    inode.parent = undefined;
  }

  rename(inode: Inode, parent: Inode, name: string): void {
    for (let at: Inode | undefined = parent; at !== undefined; at = at.parent) if (at === inode) return;
    const replaced = parent.children?.get(name);
    if (parent.children === undefined || replaced === inode || inode.parent === undefined) return;
    if (replaced !== undefined) {
      const isAllowed = inode.children === undefined ? !replaced.children : replaced.children?.size === 0;
      if (!isAllowed) return;
      if (replaced.watch !== undefined) {
        this.queue.push(event(replaced.watch, IN.IGNORED, 0, ""));
        this.#watched.delete(replaced.watch);
      }
      replaced.parent = undefined;
    }
    const cookie = (this.#cookies += 1);
    this.#notify(inode, IN.MOVED_FROM, cookie);
    inode.parent.children?.delete(inode.name);
    this.#link(inode, parent, name);
    this.#notify(inode, IN.MOVED_TO, cookie);
  }

  /** What addon/watch.c does for a path. */
  check(path: string, all: boolean): Found | string {
    let at: Inode | undefined = this.root;
    for (const name of path === "" ? [] : path.split("/")) {
      if (at?.children === undefined) return at === undefined ? "ENOENT" : "ENOTDIR";
      at = at.children.get(name);
    }
    if (at?.children === undefined) return at === undefined ? "ENOENT" : "ENOTDIR";
    if (at.watch === undefined || !this.#watched.has(at.watch)) {
      at.watch = this.#watches += 1;
      this.#watched.set(at.watch, at);
    }
    const names = [...at.children.keys()];
    const isDirectory = (name: string): boolean => at.children?.get(name)?.children !== undefined;
    const files = all ? names.filter((name) => !isDirectory(name)) : [];
    return { watch: at.watch, directories: names.filter(isDirectory), files, isIncomplete: false };
  }

  unwatch(watch: number): void {
    const inode = this.#watched.get(watch);
    if (inode === undefined) return;
    inode.watch = undefined;
    this.#watched.delete(watch);
    this.queue.push(event(watch, IN.IGNORED, 0, ""));
  }

  /** Every entry below the root, by its path. */
  entries(directory: Inode = this.root, above = ""): Map<string, number> {
    const entries = new Map<string, number>();
    for (const [name, inode] of directory.children ?? []) {
      entries.set(above + name, inode.children === undefined ? inode.version : 0);
      for (const [path, version] of this.entries(inode, `${above}${name}/`)) entries.set(path, version);
    }
    return entries;
  }

  #link(inode: Inode, parent: Inode, name: string): void {
    parent.children?.set(name, inode);
    inode.parent = parent;
    inode.name = name;
  }

  #notify({ parent, name, children }: Inode, mask: number, cookie = 0): void {
    if (parent?.watch === undefined || !this.#watched.has(parent.watch)) return;
    this.queue.push(event(parent.watch, children === undefined ? mask : mask | IN.ISDIR, cookie, name));
  }
}

function event(watch: number, mask: number, cookie: number, name: string): InotifyEvent {
  return { watch, mask, cookie, name };
}

/** A client that reads only entries that a change names, as test/fixtures/directory-replica.ts does. */
class Mirror {
  readonly entries = new Map<string, number | undefined>();
  /** What it has looked up or listed: a rename of a directory above it may have been over by then. */
  readonly #lookedUp = new Set<string>();
  readonly #listed = new Set<string>();
  readonly #kernel: Kernel;

  constructor(kernel: Kernel) {
    this.#kernel = kernel;
    for (const [path, version] of kernel.entries()) this.entries.set(path, version);
  }

  follow({ kind, path, newPath, isDirectory }: Change): void {
    if (kind === "RESCAN") {
      this.#remove(path);
      this.#list(path);
    } else if (kind === "REMOVED") this.#remove(path);
    else if (kind === "MOVED") {
      const moved = this.#remove(path);
      this.#remove(newPath);
      // What it has at the old path it has looked up after the rename.
      if (!moved.some(([each]) => each === path)) this.#list(newPath);
      if (!isDirectory) {
        this.#lookUp(newPath);
        return;
      }
      for (const [each, version] of moved) {
        const place = newPath + each.slice(path.length);
        this.entries.set(place, version);
        if (this.#listed.has(each)) this.#list(place);
        else if (each === path || this.#lookedUp.has(each)) this.#lookUp(place);
      }
    } else {
      // What is in a new directory is reported too.
      if (kind === "CREATED" && isDirectory) this.#remove(path);
      this.#lookUp(path);
    }
  }

  #list(directory: string): void {
    this.#listed.add(directory);
    if (directory !== "") this.#lookUp(directory);
    for (const [path, version] of this.#kernel.entries()) {
      if (!isWithin(path, directory)) continue;
      this.entries.set(path, version);
      this.#lookedUp.add(path);
    }
  }

  #lookUp(path: string): void {
    this.entries.set(path, this.#kernel.entries().get(path));
    this.#lookedUp.add(path);
  }

  #remove(path: string): [string, number | undefined][] {
    const removed = [...this.entries].filter(([each]) => isWithin(each, path));
    for (const [each] of removed) this.entries.delete(each);
    return removed;
  }
}

function isWithin(path: string, directory: string): boolean {
  return directory === "" || path === directory || path.startsWith(`${directory}/`);
}

const NAMES = ["a", "b", "c"] as const;

/** Runs a watch as calls/watch.ts does, with every order of events, checks and changes that the kernel allows. */
class Run {
  readonly log: string[] = [];
  readonly #kernel = new Kernel();
  readonly #random: Random;
  readonly #replica: Mirror;
  readonly #changes = new Changes(() => true);
  readonly #tree = new WatchedTree({ changes: this.#changes, isRecursive: true, isIgnored: () => false });
  #checks: [WatchedDirectory, string, (Found | string)?][] = [];

  constructor(seed: number) {
    this.#random = seededRandom(seed);
    for (let count = 0; count < 6; count++) this.#change();
    this.#replica = new Mirror(this.#kernel);
    this.#settle();
  }

  run(steps: number, overflows: boolean): void {
    for (let step = 0; step < steps; step++) {
      const dice = this.#random.below(overflows ? 41 : 40);
      if (dice < 16) this.#change();
      else if (dice < 22) this.#gather(1 + this.#random.below(4), true);
      else if (dice < 26) this.#gather(Number.MAX_SAFE_INTEGER, dice < 25);
      else if (dice < 29) this.#begin(1 + this.#random.below(3));
      else if (dice < 33) this.#checkOne();
      else if (dice < 37) this.#finish();
      else if (dice < 40) this.#send();
      else {
        this.#kernel.overflow();
        this.log.push("overflow");
      }
    }
    this.#settle();
    assert.deepEqual(this.#differences(), []);
    // Every directory is watched under the path that it has.
    for (const path of this.#kernel.entries().keys()) {
      const inode = this.#at(path);
      if (inode?.children !== undefined) this.#kernel.make(inode, "probe", false);
    }
    this.#settle();
    assert.deepEqual(this.#differences(), []);
  }

  #differences(): string[] {
    const now = this.#kernel.entries();
    const paths = new Set([...now.keys(), ...this.#replica.entries.keys()]);
    return [...paths]
      .filter((path) => now.get(path) !== this.#replica.entries.get(path))
      .map((path) => `${path} is ${now.get(path)}, reported as ${this.#replica.entries.get(path)}`);
  }

  #at(path: string): Inode | undefined {
    let at: Inode | undefined = this.#kernel.root;
    for (const name of path.split("/")) at = at?.children?.get(name);
    return at;
  }

  #anyDirectory(): Inode {
    let at = this.#random.below(8) === 0 ? this.#kernel.outside : this.#kernel.root;
    for (let depth = this.#random.below(4); depth > 0; depth--) {
      const next = at.children?.get(this.#random.oneOf(NAMES));
      if (next?.children !== undefined) at = next;
    }
    return at;
  }

  #change(): void {
    const [kernel, random] = [this.#kernel, this.#random];
    const [parent, name, target, newName] = [
      this.#anyDirectory(),
      random.oneOf(NAMES),
      this.#anyDirectory(),
      random.oneOf(NAMES),
    ];
    const inode = parent.children?.get(name);
    const dice = random.below(10);
    this.log.push(`${dice} ${where(parent)}/${name} ${where(target)}/${newName}`);
    if (dice < 3) kernel.make(parent, name, true);
    else if (dice < 5) kernel.make(parent, name, false);
    else if (inode === undefined) return;
    else if (dice < 6) kernel.write(inode);
    else if (dice < 7) kernel.remove(inode);
    else kernel.rename(inode, target, newName);
  }

  /** Events are not processed while places are checked. A read right after checks does not tick. */
  #gather(most: number, ticks: boolean): void {
    if (this.#checks.length > 0) return;
    const events = this.#kernel.queue.splice(0, most);
    this.log.push(`take ${JSON.stringify(events)}`);
    for (const each of events) this.#tree.take(each);
    if (ticks && this.#kernel.queue.length === 0) this.#tree.tick();
  }

  #begin(most: number): void {
    if (this.#checks.length > 0) return;
    const { places, paths, ended } = this.#tree.next(most);
    for (const watch of ended) this.#kernel.unwatch(watch);
    this.#checks = places.map((place, index) => [place, paths[index] ?? ""]);
  }

  #checkOne(): void {
    const check = this.#checks.find(([, , result]) => result === undefined);
    if (check === undefined) return;
    check[2] = this.#kernel.check(check[1], check[0].report === "created");
    this.log.push(`check ${check[1]} ${JSON.stringify(check[2])}`);
  }

  #finish(): void {
    if (this.#checks.length === 0) return;
    for (const [place, path, result] of this.#checks) {
      if (result === undefined) continue;
      if (typeof result === "string") this.#tree.failed(place, result, path);
      else this.#tree.found(place, result, path);
    }
    this.#checks = [];
    this.log.push("finish");
  }

  #send(): void {
    const changes = this.#changes.take();
    if (changes.some(({ kind }) => kind === "RESCAN")) this.#tree.rescanned();
    for (const change of changes) {
      this.log.push(`${change.kind} ${change.path} ${change.newPath}`);
      this.#replica.follow(change);
    }
  }

  #settle(): void {
    for (let idle = 0, rounds = 0; idle < 6; rounds++) {
      assert.ok(rounds < 200, "it never comes to rest");
      this.#begin(100);
      const isIdle = this.#checks.length === 0 && this.#kernel.queue.length === 0;
      idle = isIdle ? idle + 1 : 0;
      for (let left = this.#checks.length; left > 0; left--) this.#checkOne();
      this.#finish();
      this.#gather(Number.MAX_SAFE_INTEGER, true);
      this.#send();
    }
  }
}

function where(inode: Inode): string {
  return inode.parent === undefined ? "" : `${where(inode.parent)}/${inode.name}`;
}

/** 800,000 seeds have been run. */
const SEEDS = 2_000;
/** Rare seeds that have shown faults, among them those of code from which a safeguard was removed on purpose. */
const RARE_SEEDS: readonly number[] = [7_248, 13_207, 38_176, 47_984, 84_046, 90_612, 96_991, 180_780, 338_010];
const STEPS = 100;

for (const overflows of [false, true]) {
  test(`a client mirrors a watched tree ${overflows ? "with" : "without"} dropped events`, () => {
    for (const seed of [...RARE_SEEDS, ...Array.from({ length: SEEDS }, (_, index) => 1 + index)]) {
      const run = new Run(seed);
      try {
        run.run(STEPS, overflows);
      } catch (error) {
        const log = run.log.filter((line) => line !== "take []").join("\n");
        throw new Error(`seed ${seed} makes differences:\n${log}`, { cause: error });
      }
    }
  });
}
