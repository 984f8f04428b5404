import { cp, mkdir, readdir, readFile, rm } from "node:fs/promises";
import { basename, join } from "node:path";
import { promisify } from "node:util";
import { gzip } from "node:zlib";
import { DEFAULT_SERVER_NAME } from "../../client/index.ts";
import {
  agentVariables,
  type ClientCredentials,
  CredentialsError,
  issueFolder,
  prepareFolder,
  readClientCredentials,
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

/** From 1970 for ten years: the guest may boot without a clock, and each instance has an authority of its own. */
const VALIDITY_MS = 10 * 365 * 86_400_000;

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

  constructor(folder: string) {
    this.#folder = join(folder, "credentials");
  }

  folderOf(name: string): string {
    return join(this.#folder, name);
  }

  /**
   * Issues an authority, certificates and a token. Rejects with SandboxError (MISSING_PACKAGE) without the packages for
   * it.
   */
  async issue(name: string): Promise<void> {
    prepareFolder(this.folderOf(name), true);
    try {
      await issueFolder(this.folderOf(name), DEFAULT_SERVER_NAME, new Date(Date.now() + VALIDITY_MS));
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

  async remove(name: string): Promise<void> {
    await rm(this.folderOf(name), { recursive: true, force: true });
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
