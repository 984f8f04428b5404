import {
  connect,
  type DoneDuties,
  type GuestClient,
  type Health,
  type RestoredGuest,
  restoreDuties,
} from "../../client/index.ts";
import type { ClientCredentials } from "../../credentials/index.ts";
import { currentSignal, type Instance, publishNode, SandboxError } from "../substrate/index.ts";
import { whileUp } from "./ending.ts";
import { awaken, type Awakening, CALL_MS, callLimits, type Freeze, type Patience } from "./guest.ts";
import type { Turns } from "./gate.ts";
import { type DialWith, handOver } from "./handover.ts";
import { type CredentialStore, nextOf } from "./injection.ts";
import { type Instances, isUnknownOutcome } from "./instances.ts";
import type { Journal, SandboxEntry } from "./journal.ts";
import type { OnStep, OperationQueue } from "./operation-queue.ts";
import { ranUnfrozen, unfrozenWarnings } from "./warnings.ts";

/** Dependencies of `GuestAccess`. */
export interface AccessParts {
  readonly patience: Patience;
  /** Whether sessions are frozen for a suspension. */
  readonly freeze: Freeze;
  /** Port of the agent in sandboxes that are newly created. For an existing sandbox, the port in its entry is used. */
  readonly agentPort: number;
  readonly credentials: CredentialStore;
  readonly instances: Instances;
  readonly journal: Journal;
  readonly operations: OperationQueue;
  /**
   * Spreads the work for many sandboxes over turns of the event loop, because creating a client takes milliseconds, and
   * so does recording an answer.
   */
  readonly turns: Turns;
  readonly step: OnStep;
}

/** Dials the agents of a node's sandboxes and runs their restore steps. */
export class GuestAccess {
  readonly patience: Patience;
  readonly freeze: Freeze;
  readonly agentPort: number;
  readonly #parts: AccessParts;

  constructor(parts: AccessParts) {
    this.patience = parts.patience;
    this.freeze = parts.freeze;
    this.agentPort = parts.agentPort;
    this.#parts = parts;
  }

  /**
   * Creates a client of a sandbox's agent. The client uses the instance's current address, or the last known one if the
   * daemon does not answer. Rejects with AGENT_UNREACHABLE if the instance has no address.
   */
  async dial(
    entry: SandboxEntry,
    { credentials, credentialsOf, known, expiredOf, connectTimeoutMs }: DialOptions = {},
  ): Promise<GuestClient> {
    const { ip } = known?.ip === undefined ? await this.#address(entry) : known;
    if (ip === undefined) throw new SandboxError("AGENT_UNREACHABLE", `the instance of ${entry.name} has no address`);
    const own = credentials ?? (await this.#parts.credentials.client(entry.name));
    const pinnedCertPem =
      expiredOf === undefined ? undefined : await this.#parts.credentials.serverCertificate(expiredOf);
    const address = addressOf(entry, ip);
    await this.#parts.turns.next();
    this.#report(entry.name, address, credentialsOf);
    return connect({ address, ...own, pinnedCertPem, connectTimeoutMs });
  }

  /**
   * Runs only the restore steps of a restored sandbox; `awaken` runs POST_RESTORE and Health later. Once the restore
   * steps have run, the session no longer shares random numbers and time with its clones. After a crash of the node,
   * many sandboxes may be waiting for their restore steps. So this method makes only one attempt to reach the agent,
   * and does nothing else. Rejects with GuestError or SandboxError.
   */
  async firstDuties(operation: string, entry: SandboxEntry, options: FirstDutiesOptions): Promise<DoneDuties> {
    const { known, timeoutMs, onAnswered } = options;
    const { name } = entry;
    const { credentials, journal, step } = this.#parts;
    step(operation, name, "restore steps");
    let own = credentials.forRestore(name);
    if (own.expiryMs <= Date.now()) {
      await this.renewIfExpired(operation, entry, timeoutMs);
      own = credentials.forRestore(name);
    }
    const dial = async (): Promise<GuestClient> => {
      if (known.ip === undefined) return this.dial(entry, { expiredOf: name });
      const address = addressOf(entry, known.ip);
      await this.#parts.turns.next();
      this.#report(name, address);
      return connect({ address, ...own.client, pinnedCertPem: own.serverCertPem });
    };
    const client = await dial();
    let first: RestoredGuest | undefined;
    try {
      first = withHealth(client, await client.health(callLimits(timeoutMs)));
    } catch (error) {
      client.close();
      throw error;
    } finally {
      onAnswered();
    }
    const dialAgain = (): RestoredGuest | Promise<RestoredGuest> => {
      const guest = first;
      first = undefined;
      return guest ?? dial();
    };
    const limits = { reachTimeoutMs: timeoutMs, dutiesTimeoutMs: CALL_MS, signal: currentSignal() };
    const duties = await restoreDuties(dialAgain, limits);
    const done = { duties, atMs: Date.now() };
    // The agent reports only once that the session ran unfrozen. So record it at once: if the node crashed before
    // `awaken`, the report would be lost.
    if (duties.thawedWithoutDuties) await journal.put({ ...entry, ranUnfrozen: ranUnfrozen(operation, entry, true) });
    return done;
  }

  #report(sandbox: string, address: string, credentialsOf: readonly string[] = [sandbox]): void {
    const { credentials } = this.#parts;
    const directories = credentialsOf.map((name) => credentials.directoryOf(name));
    publishNode({ event: "dialling", sandbox, address, credentials: directories });
  }

  async #address(entry: SandboxEntry): Promise<{ readonly ip: string | undefined }> {
    return this.#parts.instances.existing(entry).catch((error: unknown) => {
      if (entry.lastIp === undefined || !isUnknownOutcome(error)) throw error;
      return { ip: entry.lastIp };
    });
  }

  /** Returns a client whose agent has answered Health. Makes one attempt; rejects with GuestError or SandboxError. */
  async answered(
    entry: SandboxEntry,
    {
      known,
      ...call
    }: { readonly known?: Instance | undefined; readonly timeoutMs: number; readonly signal?: AbortSignal },
  ): Promise<GuestClient> {
    const client = await this.dial(entry, { known, expiredOf: entry.name });
    try {
      await client.health(call);
      return client;
    } catch (error) {
      client.close();
      throw error;
    }
  }

  /** Calls a sandbox's agent over a new connection, which is closed afterwards. */
  async ask<Answer>(entry: SandboxEntry, question: (client: GuestClient) => Promise<Answer>): Promise<Answer> {
    using client = await this.dial(entry);
    return await question(client);
  }

  /**
   * Runs the restore steps of a restored sandbox (unless they are done already), POST_RESTORE and Health, and records
   * the sandbox as running.
   */
  async awaken(operation: string, found: SandboxEntry, options: AwakenOptions = {}): Promise<Awakening> {
    // If the boot of this sandbox was interrupted, this call completes the boot. A booted guest contains nothing of an
    // earlier suspension, so remove the fields about that suspension.
    const entry =
      found.bootingSinceMs === undefined
        ? found
        : { ...found, bootingSinceMs: undefined, preSnapshot: undefined, ranUnfrozen: undefined };
    const {
      reachTimeoutMs = this.patience.reachTimeoutMs,
      known,
      done,
      onAnswered,
      connectTimeoutMs,
      pollIntervalMs,
      replaced,
    } = options;
    let whenAnswered = onAnswered;
    const dial = async (): Promise<RestoredGuest> => {
      const client = await this.dial(entry, { known, expiredOf: entry.name, connectTimeoutMs });
      const guest = whenAnswered === undefined ? client : telling(client, whenAnswered);
      whenAnswered = undefined;
      return guest;
    };
    const { instances, journal, operations, step } = this.#parts;
    if (done === undefined) await this.renewIfExpired(operation, entry, reachTimeoutMs);
    step(
      operation,
      entry.name,
      done === undefined
        ? "run the restore steps, run POST_RESTORE, and call Health"
        : "run POST_RESTORE, and call Health",
    );
    const awakening = await whileUp({ ...instances.subject(entry), pollIntervalMs }, (signal) =>
      awaken(dial, { ...this.patience, reachTimeoutMs }, signal, done),
    );
    const { runEpochMs, agentVersion, agentServices, warnings } = awakening;
    const isLate = warnings.some(({ code }) => code === "THAWED_WITHOUT_DUTIES");
    await this.#parts.turns.next();
    await journal.put({
      ...entry,
      runEpochMs,
      agentVersion,
      agentServices,
      asleepBecause: undefined,
      thawsAtMs: undefined,
      ranUnfrozen: ranUnfrozen(operation, entry, isLate),
    });
    operations.setRisk(entry.name, undefined);
    return { ...awakening, warnings: [...unfrozenWarnings(entry, replaced), ...warnings] };
  }

  /**
   * Replaces the expired credentials of a restored sandbox before the restore steps set its clock. With the right time,
   * the agent would refuse the expired credentials, and this node could not reach it any more. If the session is
   * frozen, it stays frozen.
   */
  async renewIfExpired(
    operation: string,
    entry: SandboxEntry,
    reachTimeoutMs: number = this.patience.reachTimeoutMs,
  ): Promise<void> {
    const { credentials, instances, step } = this.#parts;
    const { name } = entry;
    if ((await credentials.expiryMs(name)) > Date.now()) return;
    step(operation, name, "replace its expired credentials");
    await credentials.issueNext(name);
    const [old, fresh, files] = await Promise.all([
      credentials.client(name),
      credentials.client(nextOf(name)),
      credentials.guestFiles(nextOf(name)),
    ]);
    const dial: DialWith = (own) =>
      this.dial(entry, { credentials: own, credentialsOf: [name, nextOf(name)], expiredOf: name });
    await whileUp(instances.subject(entry), async (signal) => {
      const limits = { reachTimeoutMs, signal: currentSignal(signal) };
      await restoreDuties(() => dial(old), { ...limits, keepFrozen: true, hostTime: false });
      await handOver(dial, { old, fresh, files }, limits);
    });
    await credentials.replace(name);
  }
}

export interface DialOptions {
  /** The credentials to connect with. Default: the sandbox's current credentials. */
  readonly credentials?: ClientCredentials;
  /** Names of the credential sets from which `credentials` were read, for `NodeEvent`. Default: the sandbox's own set. */
  readonly credentialsOf?: readonly string[];
  /** The sandbox's instance, if the caller has just listed it. This saves a request to the substrate. */
  readonly known?: Instance | undefined;
  /**
   * Name of a credential set. The agent's certificate of that set is accepted even if it has expired, because the agent
   * of a guest that was restored from an old snapshot may still have it. Use this only for the calls of a restore.
   * Default: no expired certificate is accepted.
   */
  readonly expiredOf?: string;
  /** Time limit until the connection is ready, in milliseconds. Default: the client's own. */
  readonly connectTimeoutMs?: number | undefined;
}

export interface AwakenOptions {
  /** How long to wait for the agent's first answer, in milliseconds. Default: the node's `reachTimeoutMs`. */
  readonly reachTimeoutMs?: number | undefined;
  /** The sandbox's instance with its current address. Without it, the instance is looked up. */
  readonly known?: Instance | undefined;
  /** The result of the restore steps, if they have already been run; in that case they are not run again. */
  readonly done?: DoneDuties | undefined;
  /** Called once the agent has answered for the first time, or has failed to answer. */
  readonly onAnswered?: (() => void) | undefined;
  /** Time limit until a connection is ready, in milliseconds. Default: the client's own. */
  readonly connectTimeoutMs?: number | undefined;
  /** Pause between two checks of whether the instance is off, in milliseconds. Default: 1 s. */
  readonly pollIntervalMs?: number | undefined;
  /**
   * Outdated things that the sandbox uses before its restore steps, such as "the previous environment variables". The
   * text becomes a part of the warning NOT_FROZEN.
   */
  readonly replaced?: string | undefined;
}

export interface FirstDutiesOptions {
  /** The sandbox's instance, with its current address. */
  readonly known: Instance;
  /** How long to wait for the agent's answer, in milliseconds. */
  readonly timeoutMs: number;
  /** Called once the agent has answered, or has failed to answer. */
  readonly onAnswered: () => void;
}

/**
 * Returns a guest whose `health` always resolves with the given answer. This saves a request if the agent has just
 * answered.
 */
function withHealth(client: GuestClient, health: Health): RestoredGuest {
  return guestWith(client, () => Promise.resolve(health));
}

/** Wraps a client, so that `onAnswered` is called after each call of Health, whether the call succeeds or fails. */
function telling(client: GuestClient, onAnswered: () => void): RestoredGuest {
  return guestWith(client, (options) => client.health(options).finally(onAnswered));
}

function guestWith(client: GuestClient, health: RestoredGuest["health"]): RestoredGuest {
  return {
    get agentVersion() {
      return client.agentVersion;
    },
    health,
    snapshots: client.snapshots,
    close: () => client.close(),
  };
}

export function addressOf({ agentPort }: SandboxEntry, ip: string): string {
  return `${ip}:${agentPort}`;
}
