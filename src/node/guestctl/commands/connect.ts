import { once } from "node:events";
import { type Command, defineCommand, portOrPath, UsageError } from "../cli/index.ts";
import { CONNECTION_OPTIONS, openClient } from "../target/index.ts";

export const connect: Command = defineCommand({
  usage: ["connect [options] PORT|PATH"],
  about: `Connects standard input and output to a TCP port of the sandbox's loopback, or to a unix socket, as nc(1) does. Each
direction ends separately; guestctl exits after both, at a terminal after the sandbox's. For ssh(1) as its ProxyCommand.`,
  options: CONNECTION_OPTIONS,
  statuses: "0 ended by both sides, 125 failed or broken off.",
  examples: [
    "connect 5432",
    "connect /run/app.sock < request",
    "ssh -o ProxyCommand='guestctl --sandbox box connect 22' root@box",
  ],
  takes: { one: "one port or path" },
  elsewhere: [["-W", "give the port alone: guestctl connect 22"]],
  async run({ values, positionals: [target = ""] }, host) {
    if (values.json === true) throw new UsageError("connect has bytes, and no --json");
    const place = portOrPath(target, target);
    using client = await openClient(values, host);
    using tunnel = client.openTunnel(place);
    const closed = once(tunnel, "close");
    // The other promises report this failure.
    closed.catch(() => undefined);
    await tunnel.opened;
    // A failed source is not an end of input.
    host.stdin.on("error", (error) => tunnel.destroy(error));
    host.stdin.pipe(tunnel);
    const ended = host.stdin.isTTY ? once(tunnel, "end") : closed;
    tunnel.pipe(host.stdout, { end: false });
    await Promise.race([ended, closed]);
    return 0;
  },
});
