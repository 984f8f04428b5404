import { parseWaitMs, printable, STATUS_NOT_AS_INTENDED, type Subcommand } from "../../cli/index.ts";
import { listenOf, portOf, publicationObject, publicationWords } from "../../sandbox/index.ts";
import { defineVerb } from "./verb.ts";

const LISTEN_OPTION = {
  listen: { argument: "PORT", help: "host port on which the ingress accepts requests for the hostname (default 80)" },
} as const;

export const publish: Subcommand = defineVerb({
  summary: "route a hostname to a port of a sandbox",
  usage: ["publish NAME PORT HOSTNAME [--listen PORT] [--wait DURATION]"],
  about: `Makes the substrate's ingress route a hostname to a port of a sandbox, until the hostname is unpublished or the sandbox
is removed.`,
  options: {
    ...LISTEN_OPTION,
    "ingress-host": {
      argument: "ADDRESS",
      help: "address of the daemon's ingress, for checking that it serves the hostname (default 127.0.0.1)",
    },
    wait: { argument: "DURATION", help: "wait until the ingress serves the hostname, for at most this long" },
  },
  statuses: "0 if the port is published, 1 if it is published with a warning, 125 if guestctl failed.",
  examples: ["publish box 3000 web.example.com --wait 30s"],
  takes: { exactly: 3, what: "a name, a port of the sandbox and a hostname" },
  completes: ["sandbox", "nothing"],
  async run({ node, values, positionals }) {
    const [name = "", port = "", hostname = ""] = positionals;
    const timeoutMs = parseWaitMs(values.wait, "--wait");
    const made = await node.publish(name, portOf(port, "the port"), hostname, {
      listenPort: listenOf(values),
      timeoutMs,
    });
    const warning = made.warning === undefined ? "" : `; ${printable(made.warning)}`;
    const rest = timeoutMs === undefined ? warning || "; use --wait to check that the ingress serves it" : "";
    const status = made.warning === undefined ? 0 : STATUS_NOT_AS_INTENDED;
    return { text: `${publicationWords(made)} of ${name}${rest}\n`, json: publicationObject(made), status };
  },
});

export const unpublish: Subcommand = defineVerb({
  summary: "stop routing a hostname to a sandbox",
  usage: ["unpublish NAME HOSTNAME [--listen PORT]"],
  about: "Stops routing a hostname to a sandbox.",
  options: LISTEN_OPTION,
  examples: ["unpublish box web.example.com"],
  takes: { exactly: 2, what: "a name and a hostname" },
  completes: ["sandbox", "nothing"],
  async run({ node, values, positionals }) {
    const [name = "", hostname = ""] = positionals;
    await node.unpublish(name, hostname, listenOf(values));
    return { text: `${hostname} is unpublished\n`, json: { unpublished: hostname } };
  },
});
