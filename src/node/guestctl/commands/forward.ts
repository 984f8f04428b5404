import { once } from "node:events";
import { type Forwarding, type GuestError, isTransient } from "../../client/index.ts";
import {
  type Command,
  checkInput,
  defineCommand,
  failureObject,
  jsonLine,
  parseWaitMs,
  portOrPath,
  printable,
  UsageError,
  writeAll,
} from "../cli/index.ts";
import { CONNECTION_OPTIONS, connector, openClient } from "../connection/index.ts";
import { LAST_PORT } from "../../../shared/ports.ts";

/** Listens on both loopback addresses, as ssh(1) and kubectl do. */
const DEFAULT_HOST = "localhost";
/**
 * Default of --timeout: the longest time that the agent waits for a port. A server may be started only after a long
 * build.
 */
const DEFAULT_WAIT_MS = 86_400_000;

export const forward: Command = defineCommand({
  usage: ["forward [options] [[HOST:]LOCAL:]PORT|PATH..."],
  about: `Forwards local TCP ports to ports of the sandbox's loopback, or to its unix sockets, until SIGINT or SIGTERM. The
sandbox needs no network for it. Without LOCAL the local port has the same number; 0 or ":PORT" chooses a free one.
LOCAL may be the path of a unix socket, which guestctl creates for its own user: /tmp/l.sock:80. Without HOST it listens
on 127.0.0.1 and ::1.`,
  options: {
    wait: { short: "w", help: "wait until a process listens on the sandbox's ports" },
    timeout: { argument: "DURATION", help: "with --wait: time limit (default 24h)" },
    ...CONNECTION_OPTIONS,
  },
  notes: `Prints a line for each port on which guestctl listens. Failed connections are reported on standard error; the others
continue. When the agent no longer accepts the credentials, for example after a restore, guestctl reads the credentials
and the sandbox's address again.
With --json, prints one object per line: "target", and "host" and "port", or the "path" of a local unix socket. The
object of a failed connection has "target" and "error".`,
  statuses: "0 if SIGINT or SIGTERM ended guestctl, 125 if guestctl failed.",
  examples: [
    "forward 8080:80",
    "forward --wait 3000 0.0.0.0:9229:9229",
    "forward /tmp/docker.sock:/var/run/docker.sock",
  ],
  takes: { some: "a port" },
  ignored: ["-N", "-q --quiet", "-T -n"],
  hints: [
    ["-L", "write the ports without -L: guestctl forward 8080:80"],
    ["-f", "to run it in the background: guestctl forward 8080:80 &"],
    ["-g --gateway-ports", "to listen on all addresses, write 0.0.0.0:8080:80"],
    ["-R", 'a sandbox cannot reach a port of this host; "forward" goes the other way'],
    ["-D", "there is no SOCKS proxy; name each port: guestctl forward 8080:80"],
    ["-p", "write the ports without -p: guestctl forward 8080:80; the agent's port is part of -H HOST:PORT"],
    ["--pod-running-timeout", "--wait --timeout DURATION waits for the sandbox's ports"],
    ["-W", "guestctl connect PORT connects standard input and output to a port"],
  ],
  async run({ values, positionals }, host) {
    const mappings = positionals.map(mappingOf);
    if (LOCAL_ADDRESS.test(values.address ?? "")) {
      throw new UsageError(
        `--address is the agent's address; to listen at ${values.address}, write ${values.address}:${positionals[0]}`,
      );
    }
    const timeoutMs = parseWaitMs(values.timeout, "--timeout");
    if (timeoutMs !== undefined && values.wait !== true) throw new UsageError("--timeout requires --wait");
    const connection = await connector(values, host);
    using client = connection.connect();
    const isForPrograms = values.json === true;
    const forwardings: Forwarding[] = [];
    const begin = async ({ local, address, target }: Mapping): Promise<void> => {
      if (values.wait === true) {
        if (typeof target === "string") throw new UsageError("--wait waits for ports, not for paths");
        await client.ports.waitFor(target, { timeoutMs: timeoutMs ?? DEFAULT_WAIT_MS });
      }
      let isLost = false;
      const onError = (error: GuestError): void => {
        // Print one line when the connection to the agent is lost, even if many connections fail because of that.
        const isKnown = isLost;
        isLost = isTransient(error);
        if (isLost && isKnown) return;
        const next = isLost ? "; guestctl tries again at the next connection" : "";
        const line = `guestctl: a connection to ${target} failed: ${printable(error.message)}${next}\n`;
        host.stderr.write(isForPrograms ? jsonLine({ target, ...failureObject(error) }) : line);
      };
      const onConnect = (): void => {
        if (isLost && !isForPrograms) host.stderr.write(`guestctl: connections to ${target} succeed again\n`);
        isLost = false;
      };
      const where = typeof target === "number" ? { port: target } : { path: target };
      const { redial: connectOptions } = connection;
      const options = { ...where, listen: local, host: address, connectOptions, onError, onConnect };
      const forwarding = await client.ports.forward(options);
      forwardings.push(forwarding);
      const { port } = forwarding;
      // localhost stands for two addresses. Show the first.
      const shown = address === DEFAULT_HOST ? "127.0.0.1" : address;
      const place =
        typeof local === "string" ? printable(local) : `${shown.includes(":") ? `[${shown}]` : shown}:${port}`;
      const json = typeof local === "string" ? { path: local, target } : { host: shown, port, target };
      await writeAll(host.stdout, isForPrograms ? jsonLine(json) : `${place} -> ${printable(String(target))}\n`);
    };
    const left = Promise.race([once(host, "SIGINT"), once(host, "SIGTERM")]);
    await Promise.race([left, Promise.all(mappings.map(begin)).then(() => left)]);
    // Closing the forwardings removes local unix sockets. It also closes open connections, without delivering pending
    // data.
    await Promise.all(forwardings.map((forwarding) => forwarding.close()));
    return 0;
  },
});

/**
 * Matches the value of kubectl's option --address, which is a local address. Does not match the address of an agent,
 * which has a port.
 */
const LOCAL_ADDRESS = /^(?:localhost|\d+(?:\.\d+){3})$/;

/** A local port or unix socket path, and its target in the sandbox. */
interface Mapping {
  readonly local: number | string;
  readonly address: string;
  readonly target: number | string;
}

const MAPPING = /^(?:(?:(\[[^\]]+\]|[^:/]+):)?(\d{1,5}):)?(\/.*|\d+)$/;
/** Matches a mapping such as `:80`, which means any free local port, as in kubectl. */
const ANY_LOCAL = /^:(?=\d+$)/;

/** Matches a local unix socket, as in `ssh -L /tmp/l.sock:/run/x.sock`. */
const LOCAL_SOCKET = /^(\/[^:]+):(\/.*|\d+)$/;

/** Parses `[[HOST:]LOCAL:]PORT|PATH`. Throws UsageError. */
function mappingOf(text: string): Mapping {
  const [, localPath, remote = ""] = LOCAL_SOCKET.exec(text) ?? [];
  if (localPath !== undefined) return { local: localPath, address: DEFAULT_HOST, target: portOrPath(remote, text) };
  const [, address = DEFAULT_HOST, local, guest] = MAPPING.exec(text.replace(ANY_LOCAL, "0:")) ?? [];
  if (guest === undefined) {
    const advice = /^[a-z][\w/-]*$/i.test(text)
      ? `if that is a sandbox: guestctl forward --sandbox ${text.split("/").at(-1)} 8080:80`
      : "PORT is a port of the sandbox itself, so write it without a host";
    throw new UsageError(`${text} is not [[HOST:]LOCAL:]PORT or PATH, such as 8080:80; ${advice}`);
  }
  const target = portOrPath(guest, text);
  const port = Number(local ?? (typeof target === "number" ? target : 0));
  if (port > LAST_PORT) throw new UsageError(`${text}: a port is at most ${LAST_PORT}`);
  return { local: port, address: address.replace(/^\[|\]$/g, ""), target };
}

export const connect: Command = defineCommand({
  usage: ["connect [options] PORT|PATH"],
  about: `Connects standard input and output to a TCP port of the sandbox's loopback, or to a unix socket, as nc(1) does. Each
direction ends separately; guestctl exits after both, or at a terminal when the sandbox's side ends. It can be the
ProxyCommand of ssh(1).`,
  options: CONNECTION_OPTIONS,
  statuses: "0 if the connection has ended in both directions, 125 if guestctl failed.",
  examples: ["connect 5432", "connect /run/app.sock < request", "--sandbox box connect 22"],
  takes: { one: "one port or path" },
  hints: [["-W", "write the port without -W: guestctl connect 22"]],
  async run({ values, positionals: [target = ""] }, host) {
    if (values.json === true) throw new UsageError("connect transfers bytes, and has no --json");
    const place = portOrPath(target, target);
    checkInput(host);
    using client = await openClient(values, host);
    using tunnel = client.ports.connect(place);
    const closed = once(tunnel, "close");
    // Without this handler, an early failure would be an unhandled rejection, which ends the process. `opened` or the
    // race below reports the failure.
    closed.catch(() => undefined);
    await tunnel.opened;
    // If standard input fails, destroy the tunnel. Ending it would tell the server that the input is complete.
    host.stdin.on("error", (error) => tunnel.destroy(error));
    host.stdin.pipe(tunnel);
    const ended = host.stdin.isTTY ? once(tunnel, "end") : closed;
    tunnel.pipe(host.stdout, { end: false });
    await Promise.race([ended, closed]);
    return 0;
  },
});
