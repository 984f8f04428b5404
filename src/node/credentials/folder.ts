import { randomBytes, X509Certificate } from "node:crypto";
import { existsSync, readFileSync, type Stats } from "node:fs";
import { readFile, rename, rm, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { errnoOf } from "../../shared/errors.ts";
import { makeFolder } from "../../shared/make-folder.ts";
import type { InstanceCertificates } from "./certificates.ts";

/** A credential folder cannot be created or read. The message names the folder or file and says what to do. */
export class CredentialsError extends Error {
  override readonly name = "CredentialsError";
  /** MISSING_PACKAGE: one of those that issue certificates. */
  readonly code: "CREDENTIALS_FAILED" | "MISSING_PACKAGE";

  constructor(message: string, code: CredentialsError["code"] = "CREDENTIALS_FAILED", cause?: unknown) {
    super(message, { cause });
    this.code = code;
  }
}

/** Names of the files in a credential folder. */
const FILES = {
  ca: "ca.pem",
  serverCert: "server.pem",
  serverKey: "server.key",
  clientCert: "client.pem",
  clientKey: "client.key",
  token: "token",
} as const;

/** A client's part of a credential folder. */
export interface ClientCredentials {
  readonly caPem: Buffer;
  readonly certPem: Buffer;
  readonly keyPem: Buffer;
  readonly token: string;
}

/** Bootstrap variables that point an agent to its part of a credential folder. */
export function agentVariables(folder: string): Readonly<Record<string, string>> {
  const path = (name: string): string => join(resolve(folder), name);
  return {
    SVC_INSTANCE_TOKEN_FILE: path(FILES.token),
    SVC_TLS_CERT_FILE: path(FILES.serverCert),
    SVC_TLS_KEY_FILE: path(FILES.serverKey),
    SVC_TLS_CLIENT_CA_FILE: path(FILES.ca),
  };
}

/**
 * Issues all credentials of an instance, valid from 1970 on, for guests that boot without a clock. Rejects with
 * CredentialsError.
 */
export async function issueFolder(folder: string, serverName: string, notAfter: Date): Promise<void> {
  const { issueCertificates } = await import("./certificates.ts").catch((cause: unknown) => {
    throw new CredentialsError(MISSING, "MISSING_PACKAGE", cause);
  });
  await writeFolder(folder, await issueCertificates(serverName, { notBefore: new Date(0), notAfter }), generateToken());
}

/** Optional packages of the library. */
const MISSING = "cannot issue certificates without two packages: npm install @peculiar/x509 reflect-metadata";

/** An instance token: 256 random bits, base64url. */
function generateToken(): string {
  return randomBytes(32).toString("base64url");
}

/**
 * Makes a folder of mode 0700. Throws CredentialsError if it is another user's, others may enter it, or it has
 * credentials (unless `overwrite`).
 */
export function prepareFolder(folder: string, overwrite: boolean): void {
  const status = madeFolder(folder);
  if (!status.isDirectory()) throw new CredentialsError(`${folder} is not a directory; name another`);
  if ((status.mode & 0o077) !== 0) {
    throw new CredentialsError(
      `${folder} can be read by other users; name a directory of your own, or: chmod 700 ${folder}`,
    );
  }
  // Its owner could open it again, and read what root has put there.
  if (status.uid !== process.geteuid?.())
    throw new CredentialsError(`${folder} is the directory of user ${status.uid}; name one of your own`);
  if (overwrite) return;
  for (const name of Object.values(FILES)) {
    if (existsSync(join(folder, name))) {
      throw new CredentialsError(
        `${join(folder, name)} already exists; name another directory, or replace everything with --force`,
      );
    }
  }
}

function madeFolder(path: string): Stats {
  try {
    return makeFolder(path, 0o700);
  } catch (error) {
    throw new CredentialsError(`cannot create ${path} (${errnoOf(error) ?? "unknown error"}); name another directory`);
  }
}

/** Writes all credentials of an instance, each file with mode 0600 and in one step. Throws CredentialsError. */
export async function writeFolder(folder: string, certificates: InstanceCertificates, token: string): Promise<void> {
  const contents: Record<(typeof FILES)[keyof typeof FILES], string> = {
    [FILES.ca]: certificates.ca,
    [FILES.serverCert]: certificates.server.cert,
    [FILES.serverKey]: certificates.server.key,
    [FILES.clientCert]: certificates.client.cert,
    [FILES.clientKey]: certificates.client.key,
    [FILES.token]: `${token}\n`,
  };
  for (const [name, content] of Object.entries(contents)) {
    const temporary = join(folder, `.${name}.${randomBytes(4).toString("hex")}`);
    try {
      await writeFile(temporary, content, { mode: 0o600, flag: "wx" });
      await rename(temporary, join(folder, name));
    } catch (error) {
      await rm(temporary, { force: true });
      const errno = errnoOf(error) ?? "unknown error";
      throw new CredentialsError(`cannot write ${join(folder, name)} (${errno}); fix that, or name another directory`);
    }
  }
}

/** Reads the token, which is enough for a private connection. Throws CredentialsError that names the file. */
export async function readToken(folder: string): Promise<string> {
  return (await readCredential(join(folder, FILES.token))).toString().trim();
}

/** Reads a client's credentials. Throws CredentialsError that names the file. */
export async function readClientCredentials(folder: string): Promise<ClientCredentials> {
  const read = (name: string): Promise<Buffer> => readCredential(join(folder, name));
  const [caPem, certPem, keyPem, token] = await Promise.all([
    read(FILES.ca),
    read(FILES.clientCert),
    read(FILES.clientKey),
    readToken(folder),
  ]);
  return { caPem, certPem, keyPem, token };
}

/** What a restore needs of a credential folder. */
export interface RestoreCredentials {
  readonly client: ClientCredentials;
  /** The agent's own certificate. */
  readonly serverCertPem: Buffer;
  /** When the first certificate expires, in milliseconds of the epoch. */
  readonly expiryMs: number;
}

/**
 * Reads all of that synchronously, each file once: after a crash, a thousand sandboxes may wait for it, and an
 * asynchronous read of a small file takes several times as much processor time. Throws CredentialsError that names the
 * file.
 */
export function readForRestore(folder: string): RestoreCredentials {
  const read = (name: string): Buffer => {
    const path = join(folder, name);
    try {
      return readFileSync(path);
    } catch (error) {
      throw unreadable(path, error);
    }
  };
  const [caPem, certPem, serverCertPem] = [read(FILES.ca), read(FILES.clientCert), read(FILES.serverCert)];
  const client = { caPem, certPem, keyPem: read(FILES.clientKey), token: read(FILES.token).toString().trim() };
  return { client, serverCertPem, expiryMs: firstExpiry([caPem, certPem, serverCertPem]).getTime() };
}

function firstExpiry(certificates: readonly Buffer[]): Date {
  return new Date(Math.min(...certificates.map((file) => Date.parse(new X509Certificate(file).validTo))));
}

/** Reads the agent's own certificate. Throws CredentialsError that names the file. */
export function readServerCertificate(folder: string): Promise<Buffer> {
  return readCredential(join(folder, FILES.serverCert));
}

/** When the first certificate of a folder expires. Throws CredentialsError that names the file. */
export async function readExpiry(folder: string): Promise<Date> {
  const files = [FILES.ca, FILES.serverCert, FILES.clientCert].map((name) => readCredential(join(folder, name)));
  return firstExpiry(await Promise.all(files));
}

/** Whether a folder has a whole set: its token is written last. */
export function isWhole(folder: string): boolean {
  return existsSync(join(folder, FILES.token));
}

async function readCredential(path: string): Promise<Buffer> {
  try {
    return await readFile(path);
  } catch (error) {
    throw unreadable(path, error);
  }
}

function unreadable(path: string, error: unknown): CredentialsError {
  const errno = errnoOf(error) ?? "unknown error";
  return new CredentialsError(
    `cannot read ${path} (${errno}); name a directory that "guestctl issue" made, with --credentials`,
  );
}
