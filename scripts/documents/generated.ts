import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { ERROR_CODES } from "../../src/node/client/errors/error-codes.ts";
import { EXIT_STATUSES, shown } from "../../src/node/guestctl/cli/index.ts";
import { cp } from "../../src/node/guestctl/commands/cp.ts";
import { COMMANDS } from "../../src/node/guestctl/commands/index.ts";
import { LIMITS, WORKLOAD_LIMITS } from "./limits.ts";
import { LOG_EVENT_ROWS } from "./log-events.ts";
import { REASONS } from "./reasons.ts";
import { optionsOfInterface } from "./options.ts";
import { SANDBOX_CODES, SANDBOX_WARNINGS } from "./sandbox-codes.ts";
import { fieldsOf } from "./schema.ts";
import { VARIABLES } from "./variables.ts";

const ROOT = join(import.meta.dirname, "../..");
const read = (path: string): string => readFileSync(join(ROOT, path), "utf8");

type Cells = readonly string[];

function table(head: Cells, rows: readonly Cells[]): string {
  return [head, head.map(() => "---"), ...rows].map((cells) => `| ${cells.join(" | ")} |`).join("\n");
}

const FIELDS = ["field", "type", "meaning"];

/** Options that every command has. */
const SHARED: ReadonlySet<string> = new Set(["json", "help"]);

/** A command's own options as rows of a table, without those that many commands share. */
function optionsOf({ options }: Pick<typeof cp, "options">): readonly Cells[] {
  const own = Object.entries(shown(options)).filter(([name, { topic }]) => topic === undefined && !SHARED.has(name));
  return own.map(([name, { short, argument, help }]) => {
    const value = argument === undefined ? "" : ` ${argument}`;
    const names = short === undefined ? [`--${name}`] : [`-${short}`, `--${name}`];
    return [names.map((each) => `\`${each}${value}\``).join(", "), help.replaceAll(/[*|]/g, String.raw`\$&`)];
  });
}

/** The options of one kind of connection. */
function optionTable(name: string): string {
  return table(["option", "meaning"], optionsOfInterface("src/node/client/grpc/link/link.ts", name));
}

/** The decisions with their titles, sorted by number. */
function decisions(): readonly Cells[] {
  const files = globSync("docs/decisions/[0-9]*.md", { cwd: ROOT }).toSorted();
  return files.map((path) => {
    const [, number = "", title = ""] = /^# (\d{4}) (.+)$/m.exec(read(path)) ?? [];
    const [, status = "accepted"] = /^Status: (.+)$/m.exec(read(path)) ?? [];
    return [number, `[${title}](${path.split("/").at(-1)})`, status];
  });
}

/** The generated parts of each page, by the path of the page and the name of the part. */
function parts(): ReadonlyMap<string, Readonly<Record<string, string>>> {
  const codes = Object.entries(ERROR_CODES).map(([code, step]) => [
    `\`${code}\``,
    step === "" ? "see the message" : step,
  ]);
  return new Map([
    [
      "docs/agent/run.md",
      {
        "process-fields": table(FIELDS, fieldsOf("process.proto", "Process")),
        "hooks-fields": table(FIELDS, fieldsOf("process.proto", "Hooks")),
      },
    ],
    [
      "docs/agent/operations.md",
      {
        variables: table(["variable", "meaning"], VARIABLES),
        "log-events": table(["event", "fields", "when"], LOG_EVENT_ROWS),
        reasons: table(["reason", "status", "meaning"], REASONS),
        limits: table(["what", "limit"], LIMITS),
        "workload-limits": table(["what", "limit"], WORKLOAD_LIMITS),
      },
    ],
    [
      "docs/node/client.md",
      {
        codes: table(["code", "what to do"], codes),
        "connect-options": [
          "For every connection:",
          optionTable("Credentials"),
          "With TLS:",
          optionTable("TcpOptions"),
          "Without TLS, through a unix socket or vsock:",
          optionTable("UnixSocketOptions"),
          "Through a bridge:",
          optionTable("BridgeOptions"),
        ].join("\n\n"),
      },
    ],
    [
      "docs/node/sandboxes.md",
      { codes: table(["code", "when"], SANDBOX_CODES), warnings: table(["warning", "when"], SANDBOX_WARNINGS) },
    ],
    [
      "docs/node/guestctl.md",
      {
        commands: table(
          ["command", "what it does"],
          [...COMMANDS].map(([name, { summary }]) => [`\`${name}\``, summary]),
        ),
        "cp-options": table(["option", "effect"], optionsOf(cp)),
        statuses: table(["status", "meaning"], EXIT_STATUSES),
      },
    ],
    ["docs/decisions/README.md", { decisions: table(["number", "decision", "status"], decisions()) }],
  ]);
}

/** Replaces the text between the two comments of a part. Throws if the page does not contain them. */
function withPart(page: string, name: string, text: string): string {
  const [begin, end] = [`<!-- begin: ${name} -->`, `<!-- end: ${name} -->`];
  const [before, rest = ""] = page.split(begin);
  const [, after] = rest.split(end);
  if (before === undefined || after === undefined) throw new Error(`a page has no "${begin}" and "${end}"`);
  return `${before}${begin}\n\n${text}\n\n${end}${after}`;
}

/** Every page with generated parts, by path, with its correct content. */
export function generatedDocuments(): ReadonlyMap<string, string> {
  return new Map(
    [...parts()].map(([path, named]) => [
      join(ROOT, path),
      Object.entries(named).reduce((page, [name, text]) => withPart(page, name, text), read(path)),
    ]),
  );
}
