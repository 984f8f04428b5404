/** What may stand before or after a path's end without being a part of it. */
const PART_OF_NAME = "[A-Za-z0-9._~%-]";

/**
 * Those of a build machine's folders whose paths stand in a file. `/project` stands in `/project/src/main.c` and in
 * `file:///project`, and not in `https://example.com/project/` or in `/projects`: a checkout may have any short name.
 */
export function buildPathsIn(bytes: Buffer, folders: readonly string[]): string[] {
  const text = bytes.toString("latin1");
  return folders.filter((folder) => {
    const path = Buffer.from(folder.replace(/\/$/, "")).toString("latin1");
    return new RegExp(`(?:file://|-[IL]|(?<!${PART_OF_NAME}|/))${RegExp.escape(path)}(?!${PART_OF_NAME})`).test(text);
  });
}
