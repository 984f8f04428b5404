import type { HooksSpec, LogLevel, ProcessSpec } from "../domain/index.ts";
import { type AcceptsTlsMaterial, Credentials } from "./credentials.ts";
import type { BoundRead, ReadFiles } from "./files.ts";
import { SpecFiles, specFilesOf } from "./spec-files.ts";
import { LAST_VSOCK_PORT } from "../../shared/ports.ts";
import { readHooksSpec, readProcessSpec, readSpecFile } from "./specs.ts";
import {
  BOOTSTRAP_VARIABLES,
  BootstrapError,
  type BootstrapFault,
  type BootstrapValues,
  type BootstrapVariable,
  type Read,
  readLogLevel,
  readPort,
  readSocketPath,
  readVariables,
} from "./variables.ts";

export interface Configuration {
  /** TCP port of the management listener. If undefined, there is no TCP listener. */
  readonly guestPort: number | undefined;
  /** vsock port of the management listener. If undefined, there is no vsock listener. */
  readonly guestVsockPort: number | undefined;
  /** Path of the management listener's unix socket. If undefined, there is no such socket. */
  readonly guestSocketPath: string | undefined;
  /** Path of the workload's socket. If undefined, there is no workload listener. */
  readonly workloadSocketPath: string | undefined;
  /** Path of the socket that answers probes. If undefined, there is no such socket. */
  readonly probeSocketPath: string | undefined;
  /** `credentials.tls` is always set if `guestPort` is set: TCP requires TLS, but vsock does not. */
  readonly credentials: Credentials;
  readonly process: ProcessSpec;
  readonly hooks: HooksSpec;
  /** Reads `process` and `hooks` again from their files, if they came from files. */
  readonly specFiles: SpecFiles;
  readonly logLevel: LogLevel;
}

/**
 * Reads the configuration from the agent's environment (raw `NAME=value` entries) and from the files that it names. See
 * docs/agent/operations.md, Variables.
 *
 * @param accepts a quick check of the TLS files; if it returns false, a slower check finds the faults
 * @throws BootstrapError, which lists every fault without the values of the variables; the process should then exit
 *   with status 78
 */
export async function readBootstrap(
  environ: readonly Uint8Array[],
  readFiles: ReadFiles,
  accepts?: AcceptsTlsMaterial,
  bound?: BoundRead,
): Promise<Configuration> {
  const { values, token, faults } = readVariables(environ);
  const take = <Value>(variable: BootstrapVariable, read: (text: string | undefined) => Read<Value>): Value => {
    const { value, problems } = read(values.get(variable));
    faults.push(...problems.map((problem) => ({ variable, problem })));
    return value;
  };
  // Variables that are set, even if their value is invalid. Such a variable must not also be reported as missing.
  const given: ReadonlySet<BootstrapVariable> = new Set([
    ...values.keys(),
    ...(token === undefined ? [] : ["SVC_INSTANCE_TOKEN" as const]),
    ...faults.map((fault) => fault.variable),
  ]);
  faults.push(...combinationFaults(given, values));
  // Reads a spec from its variable, or from the file that the `_FILE` variable names. A file keeps secrets out of the
  // host's API, which shows the environment of an instance.
  const files = specFilesOf(values, readFiles);
  const takeSpec = async <Value>(
    variable: "SVC_PROCESS_SPEC" | "SVC_HOOKS_SPEC",
    read: (text: string | undefined) => Read<Value>,
  ): Promise<Value> => {
    const fileVariable = `${variable}_FILE` as const;
    if (given.has(variable) && given.has(fileVariable)) {
      faults.push({ variable: fileVariable, problem: `cannot be combined with ${variable}; set one of them` });
    }
    const inline = take(variable, read);
    const file = await files.read(fileVariable, bound);
    return file === undefined ? inline : take(fileVariable, () => readSpecFile(file, read));
  };

  const guestPort = take("SVC_GUEST_PORT", readPort);
  const guestVsockPort = take("SVC_GUEST_VSOCK_PORT", (text) => readPort(text, LAST_VSOCK_PORT));
  const guestSocketPath = take("SVC_GUEST_SOCKET", readSocketPath);
  const workloadSocketPath = take("SVC_WORKLOAD_SOCKET", readSocketPath);
  const probeSocketPath = take("SVC_PROBE_SOCKET", readSocketPath);
  const process = await takeSpec("SVC_PROCESS_SPEC", readProcessSpec);
  const hooks = await takeSpec("SVC_HOOKS_SPEC", readHooksSpec);
  const logLevel = take("SVC_LOG_LEVEL", readLogLevel);
  const { value: credentials, ...loaded } = await Credentials.load({ values, token }, readFiles, accepts, bound);
  faults.push(...loaded.faults);
  if (faults.length > 0 || credentials === undefined) throw new BootstrapError(inOrder(faults));
  const specFiles = new SpecFiles(files, { process, hooks });
  const sockets = { guestSocketPath, workloadSocketPath, probeSocketPath };
  return { guestPort, guestVsockPort, ...sockets, credentials, process, hooks, specFiles, logLevel };
}

const TLS_VARIABLES: readonly BootstrapVariable[] = ["SVC_TLS_CERT_FILE", "SVC_TLS_KEY_FILE", "SVC_TLS_CLIENT_CA_FILE"];

/**
 * Faults of variables that require or exclude each other. TLS files without a port are a fault, too: the operator who
 * set the files expects a TLS listener.
 */
function combinationFaults(given: ReadonlySet<BootstrapVariable>, values: BootstrapValues): BootstrapFault[] {
  const faults: BootstrapFault[] = [];
  const report = (isBroken: boolean, variable: BootstrapVariable, problem: string): void => {
    if (isBroken) faults.push({ variable, problem });
  };
  const [byValue, byFile] = [given.has("SVC_INSTANCE_TOKEN"), given.has("SVC_INSTANCE_TOKEN_FILE")];
  const [hasPort, hasSocket] = [given.has("SVC_GUEST_PORT"), given.has("SVC_GUEST_SOCKET")];
  const hasVsock = given.has("SVC_GUEST_VSOCK_PORT");
  const hasTls = TLS_VARIABLES.some((variable) => given.has(variable));
  const socket = values.get("SVC_WORKLOAD_SOCKET");
  const noPort = "is set without SVC_GUEST_PORT or SVC_GUEST_VSOCK_PORT; set a port or leave the TLS files out";
  const noToken = "is not set, and neither is SVC_INSTANCE_TOKEN_FILE; set one";
  report(byValue && byFile, "SVC_INSTANCE_TOKEN_FILE", "cannot be combined with SVC_INSTANCE_TOKEN; set one of them");
  report(!byValue && !byFile, "SVC_INSTANCE_TOKEN", noToken);
  for (const variable of TLS_VARIABLES) {
    const isGiven = given.has(variable);
    report(hasPort && !isGiven, variable, "is required by SVC_GUEST_PORT, but not set");
    const isAlone = isGiven && !hasPort && !hasVsock;
    report(isAlone, variable, noPort);
    const isMissing = hasVsock && !hasPort && hasTls && !isGiven;
    report(isMissing, variable, "is not set, but other TLS files are; set all three or none");
  }
  const noListener = "is not set, and neither is SVC_GUEST_VSOCK_PORT or SVC_GUEST_SOCKET; set at least one";
  report(!hasPort && !hasVsock && !hasSocket, "SVC_GUEST_PORT", noListener);
  const isSame = socket !== undefined && socket === values.get("SVC_GUEST_SOCKET");
  report(isSame, "SVC_WORKLOAD_SOCKET", "is the same socket as SVC_GUEST_SOCKET");
  const probeSocket = values.get("SVC_PROBE_SOCKET");
  for (const other of ["SVC_GUEST_SOCKET", "SVC_WORKLOAD_SOCKET"] as const) {
    const clashes = probeSocket !== undefined && probeSocket === values.get(other);
    report(clashes, "SVC_PROBE_SOCKET", `is the same socket as ${other}`);
  }
  return faults;
}

function inOrder(faults: readonly BootstrapFault[]): BootstrapFault[] {
  return faults.toSorted(
    (left, right) => BOOTSTRAP_VARIABLES.indexOf(left.variable) - BOOTSTRAP_VARIABLES.indexOf(right.variable),
  );
}
