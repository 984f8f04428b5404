import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { HELP as AGENT_HELP } from "../../src/agent/boot/help.ts";
import { COMMAND_GROUPS } from "../../src/node/guestctl/commands/commands.ts";
import { CONNECTION_HELP } from "../../src/node/guestctl/connection/connection.ts";
import { AGENT_VERSION } from "../../src/shared/version.ts";

/** Writes the manual page of guestctl, man1/guestctl.1, into a directory of manuals: the texts of all its --help. */
export async function writeGuestctlManual(directory: string): Promise<void> {
  const sections = [
    section("SYNOPSIS", preformatted("guestctl COMMAND [options]\nguestctl sandbox COMMAND [options]")),
    section(
      "DESCRIPTION",
      "Runs commands, copies files and forwards ports in sandboxes, through the guest agent in each.",
    ),
    section("CHOOSING AN AGENT", preformatted(CONNECTION_HELP)),
  ];
  for (const { title, commands } of COMMAND_GROUPS) {
    sections.push(section(title.toUpperCase(), ""));
    for (const [name, entry] of commands) {
      const command = await entry.load();
      sections.push(subsection(`guestctl ${name}`, preformatted(command.help())));
      for (const [verb, { command: subcommand }] of command.subcommands ?? [])
        sections.push(subsection(`guestctl ${name} ${verb}`, preformatted(subcommand.help())));
    }
  }
  write(
    join(directory, "man1/guestctl.1"),
    page("guestctl", 1, "control sandboxes through their guest agents", sections),
  );
}

/** Writes the manual page of the agent, man8/guest-agent.8, into a directory of manuals. */
export function writeAgentManual(directory: string): void {
  const sections = [section("DESCRIPTION", preformatted(AGENT_HELP))];
  write(join(directory, "man8/guest-agent.8"), page("guest-agent", 8, "the agent inside a sandbox", sections));
}

/** A page in the format of man(7). It has no date, so that two builds have the same bytes. */
function page(name: string, number: number, summary: string, sections: readonly string[]): string {
  const title = `.TH ${name.toUpperCase()} ${number} "" "guest-agent ${AGENT_VERSION}"`;
  return [title, section("NAME", `${escaped(name)} \\- ${escaped(summary)}`), ...sections, ""].join("\n");
}

function section(title: string, body: string): string {
  return `.SH ${title}${body === "" ? "" : `\n${body}`}`;
}

function subsection(title: string, body: string): string {
  return `.SS ${escaped(title)}\n${body}`;
}

/** Formats a text so that its line breaks are kept. */
function preformatted(text: string): string {
  return `.nf\n${text.trimEnd().split("\n").map(escaped).join("\n")}\n.fi`;
}

/**
 * Escapes a line for groff (groff_char(7), groff(7)), so that nothing in it is a request or an escape, and a minus
 * stays a minus.
 */
function escaped(line: string): string {
  return line
    .replaceAll("\\", "\\e")
    .replaceAll("-", "\\-")
    .replaceAll(/^(?=[.'])/g, "\\&");
}

function write(file: string, text: string): void {
  mkdirSync(dirname(file), { recursive: true });
  writeFileSync(file, text);
}
