import type { TlsMaterial } from "../domain/index.ts";
import { type BootstrapFile, BootstrapFiles, type BoundRead, byteOrderMarkProblem, type ReadFiles } from "./files.ts";
import { type BootstrapFault, type BootstrapVariables, describeFault } from "./variables.ts";

const FILE_VARIABLES = [
  "SVC_INSTANCE_TOKEN_FILE",
  "SVC_TLS_CERT_FILE",
  "SVC_TLS_KEY_FILE",
  "SVC_TLS_CLIENT_CA_FILE",
] as const;
type FileVariable = (typeof FILE_VARIABLES)[number];

/**
 * A fast test of whether a listener can start with the TLS material. If it returns true, a listener can start. If it
 * returns false, the full check decides, because the material may still be valid.
 */
export type AcceptsTlsMaterial = (material: TlsMaterial) => boolean;

interface Material {
  readonly token: InstanceToken;
  readonly tls: TlsMaterial | undefined;
}

/** The result of reading credentials. `value` is undefined if there are faults, or if nothing is configured. */
export interface Found<Value> {
  readonly value: Value | undefined;
  readonly faults: readonly BootstrapFault[];
}

/** Reads the file of a variable. Returns undefined if the variable is not set. */
type ReadIfSet = (variable: FileVariable) => BootstrapFile | undefined | Promise<BootstrapFile | undefined>;

interface Sources {
  readonly files: BootstrapFiles<FileVariable>;
  /** The token, if it comes from a variable instead of a file. It never changes. */
  readonly given: Found<InstanceToken> | undefined;
  readonly accepts: AcceptsTlsMaterial;
}

/** The instance token and the TLS material in use. While the agent serves, it keeps only a digest of the token. */
export class Credentials {
  readonly #sources: Sources;
  #material: Material;

  private constructor(material: Material, sources: Sources) {
    this.#material = material;
    this.#sources = sources;
  }

  /**
   * Reads and checks the token and the TLS files; the token is required. If `accepts` returns true, the slower check of
   * the TLS files is skipped.
   */
  static async load(
    { values, token }: Pick<BootstrapVariables, "values" | "token">,
    readFiles: ReadFiles,
    accepts: AcceptsTlsMaterial = () => false,
    bound?: BoundRead,
  ): Promise<Found<Credentials>> {
    const given = token && check(token, "SVC_INSTANCE_TOKEN", "");
    const sources: Sources = { files: new BootstrapFiles(values, FILE_VARIABLES, readFiles), given, accepts };
    const { value, faults } = await readMaterial(sources, (variable) => sources.files.read(variable, bound), undefined);
    return { value: value && new Credentials(value, sources), faults };
  }

  /** The files from which the credentials were read; empty if all credentials come from variables. */
  get files(): BootstrapFiles<FileVariable> {
    return this.#sources.files;
  }

  /** Whether the token comes from a file and can therefore change. */
  get tokenRotates(): boolean {
    return this.files.has("SVC_INSTANCE_TOKEN_FILE");
  }

  /**
   * The TLS material in use; undefined if no TLS listener is configured. A reload returns a new object only if the
   * bytes of the files have changed.
   */
  get tls(): TlsMaterial | undefined {
    return this.#material.tls;
  }

  /** Replaces the token by its digest. To be called after the start of the workload and before the agent serves. */
  digestToken(): void {
    this.#material.token.digest();
  }

  /**
   * Whether `digest`, a result of tokenDigest(), equals the digest of the instance token. Takes constant time, even if
   * `digest` is undefined.
   */
  matchesToken(digest: string | undefined): boolean {
    return this.#material.token.matches(digest);
  }

  /** A value that identifies the token in use. It serves only for comparison. */
  get currentToken(): object {
    return this.#material.token;
  }

  /**
   * Reads the files again, bypassing the page cache. Returns the problems, described without secrets. If there are
   * problems, the credentials in use stay unchanged.
   */
  async reload(): Promise<readonly string[]> {
    const files = await this.files.reread();
    const { value, faults } = await readMaterial(this.#sources, (variable) => files.get(variable), this.tls);
    if (value !== undefined) {
      this.#material = value;
      this.digestToken();
    }
    return faults.map(describeFault);
  }
}

/**
 * @param inUse the certificates and key that the listeners use now. If the files still have the same bytes, this object
 *   is returned again.
 */
async function readMaterial(
  { given, accepts }: Sources,
  read: ReadIfSet,
  inUse: TlsMaterial | undefined,
): Promise<Found<Material>> {
  const [{ value: token, ...ofToken }, tls] = await Promise.all([
    given ?? readTokenFile(read),
    readTlsMaterial(read, (material) => isSame(material, inUse) || accepts(material)),
  ]);
  const faults = [...ofToken.faults, ...tls.faults];
  // Wipes the rejected token from memory: digest() overwrites its bytes.
  if (faults.length > 0) token?.digest();
  if (token === undefined || faults.length > 0) return { value: undefined, faults };
  return { value: { token, tls: isSame(tls.value, inUse) ? inUse : tls.value }, faults };
}

async function readTokenFile(read: ReadIfSet): Promise<Found<InstanceToken>> {
  const variable = "SVC_INSTANCE_TOKEN_FILE";
  const file = await read(variable);
  if (file === undefined) return { value: undefined, faults: [] };
  return "problem" in file
    ? { value: undefined, faults: [{ variable, problem: file.problem }] }
    : check(withoutLineBreak(file.bytes), variable, "the token in the file ");
}

function withoutLineBreak(bytes: Buffer): Buffer {
  if (bytes.at(-1) !== 0x0a) return bytes;
  return bytes.subarray(0, bytes.at(-2) === 0x0d ? -2 : -1);
}

function check(token: Buffer, variable: BootstrapFault["variable"], subject: string): Found<InstanceToken> {
  const problem = tokenProblem(token);
  return problem === undefined
    ? { value: new InstanceToken(token), faults: [] }
    : { value: undefined, faults: [{ variable, problem: subject + problem }] };
}

/** Reads the TLS files and checks that a listener could start with them. Returns material only if it could. */
async function readTlsMaterial(read: ReadIfSet, accepts: AcceptsTlsMaterial): Promise<Found<TlsMaterial>> {
  const [cert, key, clientCa] = await Promise.all([
    read("SVC_TLS_CERT_FILE"),
    read("SVC_TLS_KEY_FILE"),
    read("SVC_TLS_CLIENT_CA_FILE"),
  ]);
  if (cert === undefined && key === undefined && clientCa === undefined) return { value: undefined, faults: [] };
  const value = materialOf(cert, key, clientCa);
  if (value !== undefined && accepts(value)) return { value, faults: [] };
  // tls-faults.ts is loaded only if `accepts` returned false. It loads Node's crypto and TLS modules, which delays the
  // workload by 8 ms.
  const { tlsFaults } = await import("./tls-faults.ts");
  const faults = tlsFaults({ cert, key, clientCa });
  return { value: faults.length === 0 ? value : undefined, faults };
}

function isSame(material: TlsMaterial | undefined, other: TlsMaterial | undefined): boolean {
  if (material === undefined || other === undefined) return false;
  const { cert, key, clientCa } = other;
  return material.cert.equals(cert) && material.key.equals(key) && material.clientCa.equals(clientCa);
}

function materialOf(...files: readonly (BootstrapFile | undefined)[]): TlsMaterial | undefined {
  const [cert, key, clientCa] = files.map((file) => (file === undefined || "problem" in file ? undefined : file.bytes));
  return cert === undefined || key === undefined || clientCa === undefined ? undefined : { cert, key, clientCa };
}

/** Longest token accepted. Every call carries the token in its headers. */
const TOKEN_LIMIT_BYTES = 4096;

/**
 * Returns why a value cannot be a token, or undefined if it can. The contract defines no format, so any gRPC metadata
 * value without spaces is accepted (gRPC over HTTP/2, "ASCII-Value"). Short values are accepted, because the length of
 * a token does not say whether it is random.
 */
function tokenProblem(token: Buffer): string | undefined {
  if (token.length === 0) return "is empty";
  const mark = byteOrderMarkProblem(token);
  if (mark !== undefined) return mark;
  if (token.length > TOKEN_LIMIT_BYTES) return `is longer than ${TOKEN_LIMIT_BYTES} characters`;
  return token.every((byte) => byte > 0x20 && byte < 0x7f)
    ? undefined
    : "must contain only visible ASCII characters and no spaces";
}

/** The instance token. Once `digest()` was called, the object contains only the token's SHA-256. */
class InstanceToken {
  readonly #token: Buffer;
  #digest: string | undefined;

  constructor(token: Buffer) {
    this.#token = token;
  }

  /**
   * Overwrites the token and keeps only its digest. The constructor does not do this, because hashing requires Node's
   * crypto module, and loading that module would delay the workload.
   */
  digest(): string {
    if (this.#digest === undefined) {
      this.#digest = tokenDigest(this.#token);
      this.#token.fill(0);
    }
    return this.#digest;
  }

  /**
   * Whether `digest` equals the digest of this token. The comparison takes constant time, even if `digest` is
   * undefined.
   */
  matches(digest: string | undefined): boolean {
    const { timingSafeEqual } = process.getBuiltinModule("node:crypto");
    const own = Buffer.from(this.digest());
    // If a call has several tokens, `digest` consists of several digests, so it is too long. write() truncates it. Then
    // `written` differs from `digest.length`, and the result is false.
    const candidate = Buffer.alloc(own.length);
    const written = candidate.write(digest ?? "", "latin1");
    const equal = timingSafeEqual(own, candidate);
    return equal && written === digest?.length;
  }
}

/** The form in which tokens are kept and compared: SHA-256 in base64url. */
export function tokenDigest(token: Uint8Array): string {
  return process.getBuiltinModule("node:crypto").hash("sha256", token, "base64url");
}
