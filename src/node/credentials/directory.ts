import { createPrivateKey, randomBytes, X509Certificate } from "node:crypto";
import { existsSync, readFileSync, type Stats } from "node:fs";
import { readFile, rename, rm, writeFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { errnoOf } from "../../shared/errors.ts";
import { makeDirectory } from "../../shared/make-directory.ts";
import type { InstanceCertificates } from "./certificates.ts";

/**
 * Thrown if a credential directory cannot be created or read. The message names the directory or file and says what to
 * do.
 */
export class CredentialsError extends Error {
  override readonly name = "CredentialsError";
  /** MISSING_PACKAGE: an optional package that is required to issue certificates is not installed. */
  readonly code: "CREDENTIALS_FAILED" | "MISSING_PACKAGE";

  constructor(message: string, code: CredentialsError["code"] = "CREDENTIALS_FAILED", cause?: unknown) {
    super(message, { cause });
    this.code = code;
  }
}

/** The file of each credential, relative to the credential directory. */
const FILES = {
  ca: "ca.pem",
  serverCert: "server.pem",
  serverKey: "server.key",
  clientCert: "client.pem",
  clientKey: "client.key",
  token: "token",
} as const;

/** The client's credentials, as read from a credential directory. */
export interface ClientCredentials {
  readonly caPem: Buffer;
  readonly certPem: Buffer;
  readonly keyPem: Buffer;
  readonly token: string;
}

/**
 * Returns environment variables for an agent. They name the files of this directory that contain the agent's
 * credentials.
 */
export function agentVariables(directory: string): Readonly<Record<string, string>> {
  const path = (name: string): string => join(resolve(directory), name);
  return {
    SVC_INSTANCE_TOKEN_FILE: path(FILES.token),
    SVC_TLS_CERT_FILE: path(FILES.serverCert),
    SVC_TLS_KEY_FILE: path(FILES.serverKey),
    SVC_TLS_CLIENT_CA_FILE: path(FILES.ca),
  };
}

/**
 * Issues all credentials of an instance. They are valid from 1970 on, because a guest may boot without a correct clock.
 * Rejects with CredentialsError.
 */
export async function issueCredentials(directory: string, serverName: string, notAfter: Date): Promise<void> {
  const { issueCertificates } = await import("./certificates.ts").catch((cause: unknown) => {
    throw new CredentialsError(MISSING, "MISSING_PACKAGE", cause);
  });
  await writeDirectory(
    directory,
    await issueCertificates(serverName, { notBefore: new Date(0), notAfter }),
    generateToken(),
  );
}

/** Error message if the packages that issue certificates are not installed. They are optional dependencies. */
const MISSING = "cannot issue certificates without two packages: npm install @peculiar/x509 reflect-metadata";

/** Generates an instance token: 256 random bits in base64url. */
function generateToken(): string {
  return randomBytes(32).toString("base64url");
}

/**
 * Creates a directory with mode 0700, or checks an existing one. Throws CredentialsError if it belongs to another user,
 * other users can access it, or it already has credentials (unless `overwrite`).
 */
export function prepareDirectory(directory: string, overwrite: boolean): void {
  const status = madeDirectory(directory);
  if (!status.isDirectory()) throw new CredentialsError(`${directory} is not a directory; name another`);
  if ((status.mode & 0o077) !== 0) {
    throw new CredentialsError(
      `${directory} can be read by other users; name a directory of your own, or: chmod 700 ${directory}`,
    );
  }
  // Refuse a directory of another user, even for root: its owner could change its mode, and then read what root has
  // written there.
  if (status.uid !== process.geteuid?.())
    throw new CredentialsError(`${directory} belongs to user ${status.uid}; name a directory of your own`);
  if (overwrite) return;
  for (const name of Object.values(FILES)) {
    if (existsSync(join(directory, name))) {
      throw new CredentialsError(
        `${join(directory, name)} already exists; name another directory, or replace everything with --force`,
      );
    }
  }
}

function madeDirectory(path: string): Stats {
  try {
    return makeDirectory(path, 0o700);
  } catch (error) {
    throw new CredentialsError(`cannot create ${path} (${errnoOf(error) ?? "unknown error"}); name another directory`);
  }
}

/** Writes all credentials of an instance. Each file has mode 0600 and is written atomically. Throws CredentialsError. */
export async function writeDirectory(
  directory: string,
  certificates: InstanceCertificates,
  token: string,
): Promise<void> {
  const contents: Record<(typeof FILES)[keyof typeof FILES], string> = {
    [FILES.ca]: certificates.ca,
    [FILES.serverCert]: certificates.server.cert,
    [FILES.serverKey]: certificates.server.key,
    [FILES.clientCert]: certificates.client.cert,
    [FILES.clientKey]: certificates.client.key,
    [FILES.token]: `${token}\n`,
  };
  for (const [name, content] of Object.entries(contents)) {
    const temporary = join(directory, `.${name}.${randomBytes(4).toString("hex")}`);
    try {
      await writeFile(temporary, content, { mode: 0o600, flag: "wx" });
      await rename(temporary, join(directory, name));
    } catch (error) {
      await rm(temporary, { force: true });
      const errno = errnoOf(error) ?? "unknown error";
      throw new CredentialsError(
        `cannot write ${join(directory, name)} (${errno}); fix that, or name another directory`,
      );
    }
  }
}

/** Reads only the token, which is enough for a connection without TLS. Throws CredentialsError, which names the file. */
export async function readToken(directory: string): Promise<string> {
  return (await readCredential(join(directory, FILES.token))).toString().trim();
}

/**
 * Reads the client's credentials. Throws CredentialsError, which names the file. Also throws it if the key does not
 * belong to the certificate: a renewal replaces the two files one after the other, and they may be read in between.
 */
export async function readClientCredentials(directory: string): Promise<ClientCredentials> {
  const read = (name: string): Promise<Buffer> => readCredential(join(directory, name));
  const [caPem, certPem, keyPem, token] = await Promise.all([
    read(FILES.ca),
    read(FILES.clientCert),
    read(FILES.clientKey),
    readToken(directory),
  ]);
  if (!isKeyOf(certPem, keyPem)) {
    throw new CredentialsError(
      `${join(directory, FILES.clientKey)} is not the key of ${FILES.clientCert}; if they are being replaced, try again`,
    );
  }
  return { caPem, certPem, keyPem, token };
}

/**
 * Whether a private key belongs to a certificate. Also true if either cannot be read, because the TLS layer then says
 * why.
 */
function isKeyOf(certPem: Buffer, keyPem: Buffer): boolean {
  try {
    return new X509Certificate(certPem).checkPrivateKey(createPrivateKey(keyPem));
  } catch {
    return true;
  }
}

/** The credentials that a restore needs. */
export interface RestoreCredentials {
  readonly client: ClientCredentials;
  /** The agent's own certificate. */
  readonly serverCertPem: Buffer;
  /** Expiry of the certificate that expires first, in milliseconds since the epoch. */
  readonly expiryMs: number;
}

/**
 * Reads the credentials for a restore synchronously, each file once. After a crash, a thousand sandboxes may be
 * restored at the same time, and an asynchronous read of a small file takes several times as much CPU time. Throws
 * CredentialsError, which names the file.
 */
export function readForRestore(directory: string): RestoreCredentials {
  const read = (name: string): Buffer => {
    const path = join(directory, name);
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

/** Reads the agent's own certificate. Throws CredentialsError, which names the file. */
export function readServerCertificate(directory: string): Promise<Buffer> {
  return readCredential(join(directory, FILES.serverCert));
}

/**
 * Returns the time at which the first certificate of a directory expires. Throws CredentialsError, which names the
 * file.
 */
export async function readExpiry(directory: string): Promise<Date> {
  const files = [FILES.ca, FILES.serverCert, FILES.clientCert].map((name) => readCredential(join(directory, name)));
  return firstExpiry(await Promise.all(files));
}

/** Whether a directory has all credentials. It checks only the token, which is written last. */
export function isWhole(directory: string): boolean {
  return existsSync(join(directory, FILES.token));
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
