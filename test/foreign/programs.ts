import { execa } from "execa";
import { missingPrograms, type Program, providePrograms } from "../../scripts/machine/programs.ts";
import { Unavailable } from "./suite.ts";

/** Installs what is missing of these programs. @throws Unavailable that names those that are missing still */
export function requirePrograms(programs: readonly Program[], purpose: string): void {
  const missing = providePrograms(missingPrograms(programs), purpose);
  if (missing.length === 0) return;
  throw new Unavailable(
    `needs ${missing.map(({ name }) => name).join(", ")} (Debian: apt-get install ${missing.map((each) => each.package).join(" ")})`,
  );
}

/** The version of an installed Debian package, without Debian's own part. */
export async function packageVersion(name: string): Promise<string> {
  const { stdout } = await execa("dpkg-query", ["--show", "--showformat=${Version}", name], { reject: false });
  return /^(?:\d+:)?([^-+~]+)/.exec(stdout ?? "")?.[1] ?? "?";
}
