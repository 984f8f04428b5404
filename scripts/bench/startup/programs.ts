import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { freePort } from "../../machine/free-port.ts";
import { issueCertificates } from "../../../test/fixtures/certificates.ts";
import { type Program, workloadThatSays } from "./start.ts";

const PATH = "/usr/bin:/bin";
const WORKLOAD_LINE = "workload-executes";

/** The smallest program on Node that listens. */
const NET_SERVER = `
const server = require("node:net").createServer(() => {});
server.listen(0, "127.0.0.1", () => require("node:fs").writeSync(1, "port " + server.address().port + "\\n"));
`;

/** A bare Node of the agent's version as npm gives it, with a server on one port and nothing else. */
export function bareNetServer(folder: string, node: string = process.execPath): Program {
  const script = join(folder, "net-server.cjs");
  writeFileSync(script, NET_SERVER);
  return {
    command: [node, script],
    env: { PATH },
    portIn: (line) => (/^port \d+$/.test(line) ? Number(line.slice("port ".length)) : undefined),
  };
}

/**
 * The built agent under its launcher, with all that it has on a substrate: mutual TLS, both sockets' folders, a workload.
 */
export async function builtAgent(program: string, folder: string): Promise<() => Promise<Program>> {
  const { ca, server } = await issueCertificates();
  const put = (name: string, text: string): string => {
    const file = join(folder, name);
    writeFileSync(file, text, { mode: 0o600 });
    return file;
  };
  mkdirSync(folder, { recursive: true });
  const env = {
    PATH,
    SVC_INSTANCE_TOKEN: "startup-0123456789",
    SVC_TLS_CERT_FILE: put("server.pem", server.cert),
    SVC_TLS_KEY_FILE: put("server.key", server.key),
    SVC_TLS_CLIENT_CA_FILE: put("ca.pem", ca),
    SVC_WORKLOAD_SOCKET: join(folder, "workload.sock"),
    SVC_PROCESS_SPEC: JSON.stringify({ args: workloadThatSays(WORKLOAD_LINE) }),
  };
  return async () => {
    const port = await freePort();
    return {
      command: [program],
      env: { ...env, SVC_GUEST_PORT: String(port) },
      portIn: (line) => (line.includes('"management_listening"') ? port : undefined),
      workloadLine: WORKLOAD_LINE,
    };
  };
}
