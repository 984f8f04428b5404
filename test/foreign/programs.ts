import { type Program, providePrograms } from "../../scripts/machine/programs.ts";

/** Installs what is missing of these programs. Returns what is missing still, as a reason to skip; undefined: nothing. */
export function lackOf(programs: readonly Program[]): string | undefined {
  const missing = providePrograms(programs, "for the tests");
  const [names, packages] = [missing.map(({ name }) => name).join(", "), missing.map((each) => each.package).join(" ")];
  return missing.length === 0 ? undefined : `needs ${names} (Debian: apt-get install ${packages})`;
}
