import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { messageOf } from "../../../../shared/errors.ts";
import { GuestUsageSchema } from "../../../../shared/gen/svc/guest/v1alpha1/usage_pb.ts";
import { type LabelledUsage, usageMetrics } from "../../../client/index.ts";
import type { SandboxUsage, UsageReader } from "../../../sandboxes/index.ts";
import { CliError, type Host, printable, UsageError, type Subcommand } from "../../cli/index.ts";
import { schemaObject } from "../schema.ts";
import { defineVerb } from "./verb.ts";

/** Prometheus text format 0.0.4 (https://prometheus.io/docs/instrumenting/exposition_formats/). */
const CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8";
const DEFAULT_HOST = "127.0.0.1";

export const metrics: Subcommand = defineVerb({
  summary: "print the usage of all running sandboxes for Prometheus",
  usage: ["metrics [--listen [HOST:]PORT]"],
  about: `Prints the resource usage of all running sandboxes in Prometheus' text format, or serves it over HTTP until a signal
ends it.`,
  options: {
    listen: {
      argument: "[HOST:]PORT",
      help: "serve the metrics at http://HOST:PORT/metrics (HOST is 127.0.0.1 by default)",
    },
  },
  examples: ["metrics", "metrics --listen 9100"],
  takes: "nothing",
  isReading: true,
  async run({ node, values: { listen, json: asJson }, host }) {
    if (listen !== undefined && asJson === true)
      throw new UsageError("--listen serves only Prometheus' text format, so it cannot be combined with --json");
    using reader = node.usageReader();
    if (listen !== undefined) return await serve(reader, addressOf(listen), host);
    const usages = await reader.read();
    const json = usages.map(({ name, usage, error }) => ({
      name,
      usage: usage && schemaObject(GuestUsageSchema, usage),
      error,
    }));
    return { text: textOf(usages), json: { sandboxes: json } };
  },
});

/** Formats the metrics of each sandbox, labelled with its name. `guest_up` is 0 if its agent did not answer. */
function textOf(usages: readonly SandboxUsage[]): string {
  const reports = usages.flatMap(({ name, usage }): LabelledUsage[] =>
    usage === undefined ? [] : [{ usage, labels: { sandbox: name } }],
  );
  const up = usages.map(({ name, usage }) => `guest_up{sandbox="${name}"} ${usage === undefined ? 0 : 1}\n`);
  const head = "# HELP guest_up 1 if the sandbox's agent reported its usage, otherwise 0.\n# TYPE guest_up gauge\n";
  return `${up.length === 0 ? "" : head}${up.join("")}${usageMetrics(reports)}`;
}

interface Address {
  readonly host: string;
  readonly port: number;
}

function addressOf(text: string): Address {
  const [, host = DEFAULT_HOST, port = ""] = /^(?:\[?([^\]]*?)\]?:)?(\d{1,5})$/.exec(text) ?? [];
  if (port === "" || Number(port) > 65_535)
    throw new UsageError(`--listen requires [HOST:]PORT, not ${JSON.stringify(text)}`);
  return { host: host === "" ? DEFAULT_HOST : host, port: Number(port) };
}

async function serve(reader: UsageReader, address: Address, host: Host): Promise<number> {
  const server = createServer((request, response) => {
    if (request.url !== "/metrics") end(response, 404, "the metrics are at /metrics\n");
    else if (request.method !== "GET" && request.method !== "HEAD") end(response, 405, "use GET\n");
    else
      reader.read().then(
        (usages) => end(response, 200, textOf(usages)),
        (error: unknown) => {
          host.stderr.write(`guestctl: cannot read the metrics: ${printable(messageOf(error))}\n`);
          end(response, 503, "the substrate's daemon does not answer\n");
        },
      );
  });
  server.listen(address.port, address.host);
  try {
    await once(server, "listening");
  } catch (error) {
    throw new CliError(`cannot listen at ${address.host}:${address.port}: ${messageOf(error)}`);
  }
  const { address: bound, port } = server.address() as AddressInfo;
  host.stdout.write(`http://${bound.includes(":") ? `[${bound}]` : bound}:${port}/metrics\n`);
  await Promise.race((["SIGINT", "SIGTERM"] as const).map((signal) => once(host, signal)));
  server.close();
  // Close connections even while a scrape is in progress, so that the command ends promptly.
  server.closeAllConnections();
  return 0;
}

function end(response: ServerResponse, status: number, text: string): void {
  response.writeHead(status, { "content-type": status === 200 ? CONTENT_TYPE : "text/plain" });
  response.end(text);
}
