import { cp, mkdir, readdir, readFile, rename, rm } from "node:fs/promises";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import { DEFAULT_SERVER_NAME } from "../../client/index.ts";
import {
  agentVariables,
  type ClientCredentials,
  CredentialsError,
  issueFolder,
  isWhole,
  prepareFolder,
  readClientCredentials,
  readExpiry,
  readForRestore,
  type RestoreCredentials,
  readServerCertificate,
} from "../../credentials/index.ts";
import { entryEnd, entryHead, TAR_END } from "../../tar/index.ts";
import { SandboxError, type VolumeMount } from "../substrate/index.ts";

/** Mount point of the agent; the substrate refuses most other places. */
export const AGENT_MOUNT: string = "/srv/guest-agent";
const CREDENTIALS_MOUNT = "/srv/credentials";
const PROCESS_FILE = "process.json";
const HOOKS_FILE = "hooks.json";
/** The process spec in the guest. */
export const PROCESS_SPEC_PATH: string = join(CREDENTIALS_MOUNT, PROCESS_FILE);
/** The hooks spec in the guest. */
export const HOOKS_SPEC_PATH: string = join(CREDENTIALS_MOUNT, HOOKS_FILE);

/**
 * How long new certificates are valid. A copy of a node's folder is worthless after a year at the latest. A shorter
 * time would shut the node out of a sandbox whose operator has forgotten it: the agent refuses what has expired, by its
 * guest's clock.
 */
const CREDENTIAL_LIFETIME_MS: number = 365 * 86_400_000;

/** Volumes of an instance: the agent's, which all share, and that of its credentials, with a layer for later ones. */
export function mounts(agentVolumeId: string, credentialVolumeId: string): readonly VolumeMount[] {
  return [
    { volumeId: agentVolumeId, mountPath: AGENT_MOUNT },
    { volumeId: credentialVolumeId, mountPath: CREDENTIALS_MOUNT, overlaySize: "64MB" },
  ];
}

/** The agent's environment in the guest. It has no secret, because every read of the instance returns it. */
export function agentEnvironment(port: number): Readonly<Record<string, string>> {
  return {
    SVC_GUEST_PORT: String(port),
    ...agentVariables(CREDENTIALS_MOUNT),
    SVC_PROCESS_SPEC_FILE: PROCESS_SPEC_PATH,
    SVC_HOOKS_SPEC_FILE: join(CREDENTIALS_MOUNT, HOOKS_FILE),
    SVC_WORKLOAD_SOCKET: "/run/guest/workload.sock",
  };
}

/** The files of a credential set, in the order in which a fork gets new ones: key and certificate side by side. */
const FILE_VARIABLES = [
  "SVC_TLS_KEY_FILE",
  "SVC_TLS_CERT_FILE",
  "SVC_TLS_CLIENT_CA_FILE",
  "SVC_INSTANCE_TOKEN_FILE",
] as const;

/** A file for the guest. */
export interface GuestFile {
  /** Absolute path in the guest. */
  readonly path: string;
  readonly content: Buffer;
}

/** Credential folders of a node, one for each sandbox and snapshot, as `guestctl --credentials` takes them. */
export class CredentialStore {
  readonly #folder: string;
  readonly #lifetimeMs: number;

  constructor(folder: string, lifetimeMs: number = CREDENTIAL_LIFETIME_MS) {
    this.#folder = join(folder, "credentials");
    this.#lifetimeMs = lifetimeMs;
  }

  folderOf(name: string): string {
    return join(this.#folder, name);
  }

  /**
   * Issues an authority, certificates and a token, valid from 1970 on, as the guest may boot without a clock. Rejects
   * with SandboxError (MISSING_PACKAGE) without the packages for it.
   */
  async issue(name: string): Promise<void> {
    prepareFolder(this.folderOf(name), true);
    try {
      await issueFolder(this.folderOf(name), DEFAULT_SERVER_NAME, new Date(Date.now() + this.#lifetimeMs));
    } catch (error) {
      if (!(error instanceof CredentialsError) || error.code !== "MISSING_PACKAGE") throw error;
      throw new SandboxError(error.code, error.message, error);
    }
  }

  /** Copies a folder: a snapshot or fork wakes up with the credentials that its origin had. */
  async copy(from: string, to: string): Promise<void> {
    await mkdir(this.#folder, { recursive: true, mode: 0o700 });
    await cp(this.folderOf(from), this.folderOf(to), { recursive: true });
  }

  client(name: string): Promise<ClientCredentials> {
    return readClientCredentials(this.folderOf(name));
  }

  /** What a restore needs of a set, read at once. */
  forRestore(name: string): RestoreCredentials {
    return readForRestore(this.folderOf(name));
  }

  /** The certificate of a sandbox's agent, with which its key is recognized. */
  serverCertificate(name: string): Promise<Buffer> {
    return readServerCertificate(this.folderOf(name));
  }

  /** When the first certificate of a sandbox expires, in milliseconds of the epoch. */
  async expiryMs(name: string): Promise<number> {
    return (await readExpiry(this.folderOf(name))).getTime();
  }

  /** Issues the credentials that are to replace a sandbox's, unless an earlier rotation has issued them. */
  async issueNext(name: string): Promise<void> {
    if (!this.hasNext(name)) await this.issue(nextOf(name));
  }

  /** Whether a rotation has issued credentials that are not in force yet, as far as this node knows. */
  hasNext(name: string): boolean {
    return isWhole(this.folderOf(nextOf(name)));
  }

  /** Puts the next credentials in place of the present ones, which are gone then. Repeatable after a crash. */
  async replace(name: string): Promise<void> {
    const [present, next, old] = [name, nextOf(name), oldOf(name)].map((each) => this.folderOf(each)) as [
      string,
      string,
      string,
    ];
    if (this.hasNext(name)) {
      // Two renames: what reads in between finds nothing rather than a mixture.
      if (isWhole(present)) {
        await rm(old, { recursive: true, force: true });
        await rename(present, old);
      }
      await rename(next, present);
    }
    await rm(old, { recursive: true, force: true });
  }

  /** Removes a set, and what a rotation has left of it. */
  async remove(name: string): Promise<void> {
    for (const each of [name, nextOf(name), oldOf(name)])
      await rm(this.folderOf(each), { recursive: true, force: true });
  }

  /** Names of all folders. */
  async names(): Promise<readonly string[]> {
    return readdir(this.#folder).catch(() => []);
  }

  /** The guest's part of a credential set, for WriteFile. */
  guestFiles(name: string): Promise<readonly GuestFile[]> {
    const here = agentVariables(this.folderOf(name));
    const there = agentVariables(CREDENTIALS_MOUNT);
    return Promise.all(
      FILE_VARIABLES.map(async (variable) => ({
        path: there[variable] ?? "",
        content: await readFile(here[variable] ?? ""),
      })),
    );
  }

  /** The guest's part and the specs, as the .tar.gz that the substrate makes a volume from. */
  async archive(name: string, processSpec: object, hooksSpec: object): Promise<Buffer> {
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

/** Name of the folder with the credentials that a rotation is putting in force. */
export function nextOf(name: string): string {
  return `${name}.next`;
}

function oldOf(name: string): string {
  return `${name}.old`;
}

/** Names of all folders that the credentials of a sandbox may have during a rotation. */
export function credentialFolders(name: string): readonly string[] {
  return [name, nextOf(name), oldOf(name)];
}
