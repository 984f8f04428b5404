import { once } from "node:events";
import { connect } from "node:net";

/** The local port in the output of `guestctl forward`. */
export function forwardedPort(output: string): number {
  return Number(/:(\d+) -> /.exec(output)?.[1]);
}

/** Whether a byte comes back through a forwarded port, behind which a server echoes. */
export function echoes(port: number): Promise<boolean> {
  const socket = connect(port, "127.0.0.1");
  socket.write("x");
  const came = once(socket, "data").then(
    () => true,
    () => false,
  );
  return came.finally(() => socket.destroy());
}
