import { execa } from "execa";
import { startAgent } from "../../../test/fixtures/agent.ts";
import { packageVersion, requirePrograms } from "../debian.ts";
import type { Suite } from "../suite.ts";

const PROGRAM = { name: "sslscan", package: "sslscan" };
const RUN_LIMIT_MS = 120_000;

/** One thing that sslscan found, as an element of its report. */
interface Finding {
  readonly name: string;
  readonly isGood: boolean;
  readonly element: string;
}

/** sslscan: TLS 1.3 alone, its three ciphers, no renegotiation, no Heartbleed, a certificate that is in force. */
export const SSLSCAN: Suite = {
  name: "sslscan",
  about: "protocols, ciphers and certificate of the agent's port",
  cases: 12,
  differences: {},
  run: async () => {
    requirePrograms([PROGRAM], "for sslscan");
    await using agent = await startAgent();
    const { stdout } = await execa(PROGRAM.name, ["--no-colour", "--xml=-", `127.0.0.1:${agent.port}`], {
      timeout: RUN_LIMIT_MS,
    });
    const findings = findingsOf(stdout);
    return {
      version: await packageVersion(PROGRAM.package),
      cases: findings.length,
      failures: findings.filter(({ isGood }) => !isGood).map(({ name, element }) => ({ name, problem: element })),
    };
  },
};

function findingsOf(report: string): Finding[] {
  return Array.from(report.matchAll(/<(protocol|renegotiation|heartbleed|cipher|expired)\b[^>]*>[^<]*/g)).map(
    ([text, kind = ""]) => {
      const element = text.trim();
      const value = (attribute: string): string => new RegExp(` ${attribute}="([^"]*)"`).exec(element)?.[1] ?? "";
      const protocol = `${value("type")} ${value("version")}`;
      switch (kind) {
        case "protocol":
          return { name: protocol, isGood: (value("enabled") === "1") === (protocol === "tls 1.3"), element };
        case "cipher": {
          // sslscan calls the ciphers of TLS 1.3 acceptable or strong, by its version.
          const isGood = value("sslversion") === "TLSv1.3" && ["acceptable", "strong"].includes(value("strength"));
          return { name: value("cipher"), isGood, element };
        }
        case "renegotiation":
          return { name: kind, isGood: value("supported") === "0", element };
        case "heartbleed":
          return { name: kind, isGood: value("vulnerable") === "0", element };
        default:
          return { name: kind, isGood: element === "<expired>false", element };
      }
    },
  );
}
