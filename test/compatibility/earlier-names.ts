import type { ExecCommand, GuestClient, WriteFileOptions } from "../../src/node/client/index.ts";

/** Methods of 0.2.0 that have another name or other arguments by now; CHANGELOG.md has the table. */
interface Client020 {
  run(command: ExecCommand, input?: unknown): Promise<{ readonly code: number }>;
  writeFile(path: string, content: unknown, file: object): Promise<unknown>;
  symlink(path: string, target: string): Promise<void>;
  endExec(name: string, end: object): Promise<unknown>;
  connect(port: number): unknown;
}

/** A client of 0.2.0 by this tree's names, with its own code behind them; a newer client as it is. */
export function byTodaysNames(client: GuestClient): GuestClient {
  if ("openTunnel" in client) return client;
  const earlier = client as unknown as Client020;
  const renamed: Readonly<Record<PropertyKey, unknown>> = {
    run: async (command: ExecCommand, { input }: { input?: unknown } = {}) => {
      const { code, ...rest } = await earlier.run(command, input);
      return { ...rest, exitCode: code };
    },
    writeFile: (path: string, content: unknown, { parents, ...file }: WriteFileOptions = {}) =>
      earlier.writeFile(path, content, { ...file, ...(parents !== undefined && { createParents: parents }) }),
    symlink: (target: string, path: string) => earlier.symlink(path, target),
    endExec: (name: string, { killSignal, ...end }: { killSignal?: unknown } = {}) =>
      earlier.endExec(name, { ...end, ...(killSignal !== undefined && { signal: killSignal }) }),
    openTunnel: (port: number) => earlier.connect(port),
  };
  return new Proxy(client, {
    get: (target, name) => {
      const value: unknown = renamed[name] ?? Reflect.get(target, name, target);
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
}
