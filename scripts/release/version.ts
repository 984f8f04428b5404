import { globSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";

/** The only file that defines the version. Everything else is generated from it or compared with it. */
const MANIFEST = "package.json";
const LOCK = "package-lock.json";
const CHANGELOG = "CHANGELOG.md";
const DOCUMENTS = ["*.md", "docs/**/*.md"];
/** The version in documents: in the names of archives, packages and images, and in the README's status. */
const ARTEFACT = /(\bguest-agent(?:-client)?[-:]|\*\*Status:\*\* version )(\d+\.\d+\.\d+)/g;
const NEWEST = /^## \[(\d[^\]]*)\](.*)$/m;
/** The only release that has no date in the changelog. */
const WITHOUT_DATE = "0.1.0";

/** The project's version. */
export function projectVersion(root: string): string {
  return (JSON.parse(readFileSync(join(root, MANIFEST), "utf8")) as { readonly version: string }).version;
}

/** Places that name another version than package.json, one line each. */
export function versionFaults(root: string): readonly string[] {
  const version = projectVersion(root);
  const faults: string[] = [];
  const compare = (where: string, found: string | undefined): void => {
    if (found !== version) faults.push(`${where} has version ${found ?? "none"}, ${MANIFEST} has ${version}`);
  };
  const lock = JSON.parse(read(root, LOCK)) as Lock;
  compare(LOCK, lock.version);
  compare(`${LOCK}, its first package,`, lock.packages[""].version);
  const [, newest, date = ""] = NEWEST.exec(read(root, CHANGELOG)) ?? [];
  compare(`the newest release of ${CHANGELOG}`, newest);
  if (newest !== WITHOUT_DATE && !/^ - \d{4}-\d\d-\d\d$/.test(date))
    faults.push(`${CHANGELOG} gives ${newest} no date`);
  for (const document of documents(root)) {
    for (const [text, , named] of read(root, document).matchAll(ARTEFACT)) compare(`${document}: ${text}`, named);
  }
  return faults;
}

/** Why a release of that version cannot be made now; undefined if it can. */
export function releaseFault(root: string, version: string): string | undefined {
  const current = projectVersion(root);
  const hasUnreleased = !/^## \[Unreleased\]\n+## /m.test(read(root, CHANGELOG));
  if (version === current)
    return hasUnreleased
      ? `${CHANGELOG} has changes after ${version}, which was released before: name the next version`
      : undefined;
  if (version.localeCompare(current, "en", { numeric: true }) < 0)
    return `${version} is not after ${current}, the version in ${MANIFEST}`;
  return hasUnreleased ? undefined : `${CHANGELOG} has nothing under [Unreleased] that ${version} would bring`;
}

/**
 * Writes a new version wherever the old one occurs. The unreleased changes of the changelog become its section, with
 * that date (YYYY-MM-DD).
 */
export function setVersion(root: string, version: string, date: string): void {
  const before = projectVersion(root);
  const change = (file: string, changed: (text: string) => string): void => {
    const text = read(root, file);
    writeFileSync(join(root, file), changed(text));
  };
  const own = (text: string): string => text.replace(`"version": "${before}"`, `"version": "${version}"`);
  change(MANIFEST, own);
  change(LOCK, (text) => {
    const [head = "", ...rest] = text.split('"packages": {');
    return [own(head), own(rest.join('"packages": {'))].join('"packages": {');
  });
  change(CHANGELOG, (text) => text.replace("## [Unreleased]\n", `## [Unreleased]\n\n## [${version}] - ${date}\n`));
  for (const document of documents(root)) {
    change(document, (text) => text.replaceAll(ARTEFACT, (_, name: string) => `${name}${version}`));
  }
}

interface Lock {
  readonly version: string;
  readonly packages: { readonly "": { readonly version: string } };
}

function documents(root: string): readonly string[] {
  return globSync(DOCUMENTS, { cwd: root })
    .filter((file) => file !== CHANGELOG)
    .toSorted();
}

function read(root: string, file: string): string {
  return readFileSync(join(root, file), "utf8");
}
