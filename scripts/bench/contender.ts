import type { Load } from "./load.ts";
import type { Contender } from "./row.ts";

/** A measured server, with a connected client. */
export interface Running extends AsyncDisposable {
  readonly contender: Contender;
  /** Description, with its version. */
  readonly description: string;
  readonly load: Load;
  /** Its own processes now, without the commands that it runs. */
  pids(): readonly number[];
}

/** Options for starting a contender. */
interface Grounds {
  /** The native program: server and client. */
  readonly program: string;
  /** For keys, sockets and the like; the caller removes it. */
  readonly folder: string;
  /** Holds ca.pem, server.pem, server.key, client.pem and client.key. */
  readonly credentialsFolder: string;
  readonly token: string;
}

/** Starts a contender, or returns what it lacks. */
export type Starter = (grounds: Grounds) => Promise<Running | string>;
