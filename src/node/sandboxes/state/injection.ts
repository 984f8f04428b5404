import { cp, mkdir, readdir, readFile, rename, rm } from "node:fs/promises";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import { DEFAULT_SERVER_NAME, type HooksSpec, type ProcessSpec } from "../../client/index.ts";
import {
  agentVariables,
  type ClientCredentials,
  CredentialsError,
  issueCredentials,
  isWhole,
  prepareDirectory,
  readClientCredentials,
  readExpiry,
  readForRestore,
  type RestoreCredentials,
  readServerCertificate,
} from "../../credentials/index.ts";
import { entryEnd, entryHead, TAR_END } from "../../tar/index.ts";
import { SandboxError, type VolumeMount } from "../substrate/index.ts";

/** Mount point of the agent's volume. Most other directories are refused by the substrate. */
export const AGENT_MOUNT: string = "/srv/guest-agent";
const CREDENTIALS_MOUNT = "/srv/credentials";
const PROCESS_FILE = "process.json";
const HOOKS_FILE = "hooks.json";
export const PROCESS_SPEC_PATH: string = join(CREDENTIALS_MOUNT, PROCESS_FILE);
export const HOOKS_SPEC_PATH: string = join(CREDENTIALS_MOUNT, HOOKS_FILE);

/**
 * How long new certificates are valid. The limit makes a stolen copy of a node's directory worthless after a year. With
 * a shorter time, an operator who forgets a sandbox would lose access to it, because the agent refuses certificates
 * that have expired by the guest's clock.
 */
const CREDENTIAL_LIFETIME_MS: number = 365 * 86_400_000;

/**
 * The two volumes of an instance. The volume with the agent is shared by all instances. The volume with the sandbox's
 * credentials has a writable overlay, into which later credentials are written.
 */
export function mounts(agentVolumeId: string, credentialVolumeId: string): readonly VolumeMount[] {
  return [
    { volumeId: agentVolumeId, mountPath: AGENT_MOUNT },
    { volumeId: credentialVolumeId, mountPath: CREDENTIALS_MOUNT, overlaySize: "64MB" },
  ];
}

/**
 * The agent's environment variables in the guest. They contain no secret, because the substrate shows them to everyone
 * who can read the instance.
 */
export function agentEnvironment(port: number): Readonly<Record<string, string>> {
  return {
    SVC_GUEST_PORT: String(port),
    ...agentVariables(CREDENTIALS_MOUNT),
    SVC_PROCESS_SPEC_FILE: PROCESS_SPEC_PATH,
    SVC_HOOKS_SPEC_FILE: join(CREDENTIALS_MOUNT, HOOKS_FILE),
    SVC_WORKLOAD_SOCKET: "/run/guest/workload.sock",
  };
}

/**
 * The files of a credential set, in the order in which a fork receives new ones. The key and its certificate are
 * adjacent, so that the time in which they do not match is short.
 */
const FILE_VARIABLES = [
  "SVC_TLS_KEY_FILE",
  "SVC_TLS_CERT_FILE",
  "SVC_TLS_CLIENT_CA_FILE",
  "SVC_INSTANCE_TOKEN_FILE",
] as const;

/** A file to write in the guest. */
export interface GuestFile {
  /** Absolute path in the guest. */
  readonly path: string;
  readonly content: Buffer;
}

/**
 * Credential directories of a node, one for each sandbox and snapshot, in the layout that `guestctl --credentials`
 * expects.
 */
export class CredentialStore {
  readonly #directory: string;
  readonly #lifetimeMs: number;

  constructor(directory: string, lifetimeMs: number = CREDENTIAL_LIFETIME_MS) {
    this.#directory = join(directory, "credentials");
    this.#lifetimeMs = lifetimeMs;
  }

  directoryOf(name: string): string {
    return join(this.#directory, name);
  }

  /**
   * Issues a certificate authority, certificates and a token. They are valid from 1970 on, because the guest may boot
   * with a wrong clock. Rejects with SandboxError (MISSING_PACKAGE) if the packages for it are not installed.
   */
  async issue(name: string): Promise<void> {
    prepareDirectory(this.directoryOf(name), true);
    try {
      await issueCredentials(this.directoryOf(name), DEFAULT_SERVER_NAME, new Date(Date.now() + this.#lifetimeMs));
    } catch (error) {
      if (!(error instanceof CredentialsError) || error.code !== "MISSING_PACKAGE") throw error;
      throw new SandboxError(error.code, error.message, error);
    }
  }

  /**
   * Copies a credential directory. A snapshot or fork needs a copy of its origin's directory, because its agent wakes
   * up with the origin's credentials.
   */
  async copy(from: string, to: string): Promise<void> {
    await mkdir(this.#directory, { recursive: true, mode: 0o700 });
    await cp(this.directoryOf(from), this.directoryOf(to), { recursive: true });
  }

  client(name: string): Promise<ClientCredentials> {
    return readClientCredentials(this.directoryOf(name));
  }

  /** Reads synchronously the part of a credential set that a restore needs. */
  forRestore(name: string): RestoreCredentials {
    return readForRestore(this.directoryOf(name));
  }

  /** The certificate of a sandbox's agent. Its key identifies the agent even after the certificate has expired. */
  serverCertificate(name: string): Promise<Buffer> {
    return readServerCertificate(this.directoryOf(name));
  }

  /** Returns the time at which the first certificate of a sandbox's set expires, as Unix time in milliseconds. */
  async expiryMs(name: string): Promise<number> {
    return (await readExpiry(this.directoryOf(name))).getTime();
  }

  /**
   * Issues the credentials that will replace a sandbox's current ones, unless an interrupted rotation has issued them
   * already.
   */
  async issueNext(name: string): Promise<void> {
    if (!this.hasNext(name)) await this.issue(nextOf(name));
  }

  /** Whether a rotation has issued credentials that have not yet replaced the current ones. */
  hasNext(name: string): boolean {
    return isWhole(this.directoryOf(nextOf(name)));
  }

  /**
   * Replaces the current credentials by the new ones that a rotation has issued, and deletes the old ones. After a
   * crash at any point, the call can be repeated.
   */
  async replace(name: string): Promise<void> {
    const [present, next, old] = [name, nextOf(name), oldOf(name)].map((each) => this.directoryOf(each)) as [
      string,
      string,
      string,
    ];
    if (this.hasNext(name)) {
      // Replace the directory by two renames. A concurrent reader may then find no directory, but never a mixture of
      // two sets.
      if (isWhole(present)) {
        await rm(old, { recursive: true, force: true });
        await rename(present, old);
      }
      await rename(next, present);
    }
    await rm(old, { recursive: true, force: true });
  }

  /** Removes a credential set and the leftovers of an interrupted rotation. */
  async remove(name: string): Promise<void> {
    for (const each of [name, nextOf(name), oldOf(name)])
      await rm(this.directoryOf(each), { recursive: true, force: true });
  }

  /** Names of all credential directories. */
  async names(): Promise<readonly string[]> {
    return readdir(this.#directory).catch(() => []);
  }

  /** The files of a credential set that belong in the guest, with their paths in the guest. */
  guestFiles(name: string): Promise<readonly GuestFile[]> {
    const here = agentVariables(this.directoryOf(name));
    const there = agentVariables(CREDENTIALS_MOUNT);
    return Promise.all(
      FILE_VARIABLES.map(async (variable) => ({
        path: there[variable] ?? "",
        content: await readFile(here[variable] ?? ""),
      })),
    );
  }

  /**
   * Packs the guest's credential files, its process spec and its hooks spec into a .tar.gz, from which the substrate
   * creates a volume.
   */
  async archive(name: string, processSpec: ProcessSpec, hooksSpec: HooksSpec): Promise<Buffer> {
    const specs = [
      { path: PROCESS_FILE, content: Buffer.from(JSON.stringify(processSpec)) },
      { path: HOOKS_FILE, content: Buffer.from(JSON.stringify(hooksSpec)) },
    ];
    const files = [...(await this.guestFiles(name)), ...specs];
    const common = { type: "file", linkTarget: Buffer.alloc(0), mode: 0o600, mtimeSeconds: 0 } as const;
    const blocks = files.flatMap(({ path, content }) => {
      const sizeBytes = content.length;
      return [
        entryHead({ ...common, name: Buffer.from(basename(path)), size: sizeBytes }),
        content,
        entryEnd(sizeBytes),
      ];
    });
    return promisify(gzip)(Buffer.concat([...blocks, TAR_END]));
  }
}

/** Name of the directory with the credentials that a rotation is about to put into use. */
export function nextOf(name: string): string {
  return `${name}.next`;
}

function oldOf(name: string): string {
  return `${name}.old`;
}

/** Names of all directories that a sandbox's credentials may be in during a rotation. */
export function credentialDirectories(name: string): readonly string[] {
  return [name, nextOf(name), oldOf(name)];
}
