import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { chmodSync, cpSync, mkdirSync, readFileSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { execa } from "execa";
import { buildGoTool, provideGo } from "../../fixtures/toolchains.ts";
import { unpacked } from "../../vm/harness/packages.ts";

/** As runp of the Container Runtime Interface counts it: the pod uses the network of its host. */
const NETWORK_OF_NODE = 2;
const PAUSE_IMAGE = "localhost/pause:1";
/** Programs of the workload's image, by the names that BusyBox gives them. */
const APPLETS = ["sh", "sleep", "cat", "echo", "env", "id", "ls", "mkdir", "tar", "true"];

/** A container as the Container Runtime Interface describes it. */
export interface ContainerSpec {
  readonly name: string;
  readonly image: string;
  readonly command: readonly string[];
  readonly envs: readonly { readonly key: string; readonly value: string }[];
  readonly mounts: readonly {
    readonly container_path: string;
    readonly host_path: string;
    readonly readonly: boolean;
  }[];
}

/** State of a container. */
export interface ContainerStatus {
  readonly state: string;
  readonly exitCode: number;
}

/** containerd with its Container Runtime Interface, in a directory of its own, and crictl, which speaks that interface. */
export class Containerd implements AsyncDisposable {
  readonly #directory: string;
  readonly #process: ChildProcess;
  readonly #crictl: string;
  readonly #ctr: string;
  #pod = "";

  private constructor(directory: string, process: ChildProcess, crictl: string, ctr: string) {
    this.#directory = directory;
    this.#process = process;
    this.#crictl = crictl;
    this.#ctr = ctr;
  }

  /** Debian's containerd and runc, without installing them, and crictl of the Go proxy; or why they cannot be had. */
  static async start(directory: string): Promise<Containerd | string> {
    const go = await provideGo();
    if (typeof go === "string") return go;
    const crictl = await buildGoTool(go, import.meta.dirname, "sigs.k8s.io/cri-tools/cmd/crictl");
    const [containerd, runc] = [join(unpacked("containerd"), "usr/bin"), join(unpacked("runc"), "usr/sbin/runc")];
    const at = (name: string): string => join(directory, name);
    writeFileSync(at("config.toml"), configuration(directory, runc));
    const process = spawn(join(containerd, "containerd"), ["--config", at("config.toml")], {
      stdio: "ignore",
      env: { PATH: `${containerd}:/usr/sbin:/usr/bin:/sbin:/bin` },
    });
    const started = new Containerd(directory, process, crictl, join(containerd, "ctr"));
    for (;;) {
      assert.equal(process.exitCode, null, "containerd has ended");
      if (!(await execa(crictl, [...started.#endpoint, "version"], { reject: false })).failed) break;
    }
    await started.#import(PAUSE_IMAGE, pauseImage(at("pause")), ["/sleep", "1000000"]);
    return started;
  }

  /** crictl's words for a command in a container that is connected to this process, as `kubectl exec -i` is. */
  execWords(container: string): string[] {
    return [this.#crictl, ...this.#endpoint, "exec", "-i", container];
  }

  /** Makes an image of a directory. */
  async addImage(name: string, directory: string): Promise<void> {
    await this.#import(name, directory);
  }

  /** Creates the pod of all containers that follow. */
  async runPod(): Promise<void> {
    const pod = {
      metadata: { name: "box", uid: "box-1", namespace: "default", attempt: 1 },
      log_directory: join(this.#directory, "logs"),
      linux: { security_context: { namespace_options: { network: NETWORK_OF_NODE } } },
    };
    writeFileSync(this.#podFile, JSON.stringify(pod));
    this.#pod = await this.#run("runp", this.#podFile);
  }

  /** Creates and starts a container. Resolves with its id. */
  async start(spec: ContainerSpec): Promise<string> {
    const { name, image, ...rest } = spec;
    const file = join(this.#directory, `${name}.json`);
    writeFileSync(file, JSON.stringify({ metadata: { name }, image: { image }, log_path: `${name}.log`, ...rest }));
    const id = await this.#run("create", "--no-pull", this.#pod, file, this.#podFile);
    await this.#run("start", id);
    return id;
  }

  async status(container: string): Promise<ContainerStatus> {
    const { status } = JSON.parse(await this.#run("inspect", container)) as { readonly status: ContainerStatus };
    return status;
  }

  /** Resolves with the exit code of a container that ends by itself. */
  async ended(container: string): Promise<number> {
    for (;;) {
      const { state, exitCode } = await this.status(container);
      if (state === "CONTAINER_EXITED") return exitCode;
    }
  }

  /** Runs an exec probe as kubelet does (ExecSync). Resolves with its exit code. */
  async probe(container: string, command: readonly string[]): Promise<number> {
    const { exitCode, stderr } = await execa(
      this.#crictl,
      [...this.#endpoint, "exec", "--sync", container, ...command],
      { reject: false },
    );
    // crictl itself exits with 1 and prints the command's exit code.
    const [, code] = /exit code: (\d+)|exited with (\d+)/.exec(stderr) ?? [];
    return code === undefined ? (exitCode ?? -1) : Number(code);
  }

  /** Stops a container as the end of a pod does: SIGTERM, then after that time SIGKILL. */
  async stop(container: string, graceSeconds: number): Promise<void> {
    await this.#run("stop", "--timeout", String(graceSeconds), container);
  }

  log(name: string): string {
    return readFileSync(join(this.#directory, "logs", `${name}.log`), "utf8");
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#pod !== "") {
      await this.#run("stopp", this.#pod).catch(() => {});
      await this.#run("rmp", "--force", this.#pod).catch(() => {});
    }
    const ended = new Promise((resolve) => this.#process.once("close", resolve));
    this.#process.kill("SIGTERM");
    await ended;
  }

  get #endpoint(): readonly string[] {
    const socket = `unix://${join(this.#directory, "containerd.sock")}`;
    return ["--runtime-endpoint", socket, "--image-endpoint", socket, "--timeout", "60s"];
  }

  get #podFile(): string {
    return join(this.#directory, "pod.json");
  }

  async #run(...words: readonly string[]): Promise<string> {
    return (await execa(this.#crictl, [...this.#endpoint, ...words])).stdout;
  }

  async #import(name: string, directory: string, command: readonly string[] = []): Promise<void> {
    const work = join(this.#directory, `image-${name.replaceAll(/\W/g, "-")}`);
    const archive = await imageArchive(name, directory, command, work);
    const socket = join(this.#directory, "containerd.sock");
    await execa(this.#ctr, ["--address", socket, "--namespace", "k8s.io", "images", "import", archive]);
  }
}

function configuration(directory: string, runc: string): string {
  return `version = 2
root = "${directory}/root"
state = "${directory}/state"
[grpc]
  address = "${directory}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "${PAUSE_IMAGE}"
  # This machine may not allow a score below that of containerd.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      BinaryName = "${runc}"
`;
}

/** Archives a directory as an image with one layer, as docker save does. Resolves with the archive's path. */
async function imageArchive(
  name: string,
  directory: string,
  command: readonly string[],
  work: string,
): Promise<string> {
  mkdirSync(work);
  const layer = join(work, "layer.tar");
  await execa("tar", ["-C", directory, "--owner=0", "--group=0", "--numeric-owner", "-cf", layer, "."]);
  const digest = createHash("sha256").update(readFileSync(layer)).digest("hex");
  const architecture = process.arch === "arm64" ? "arm64" : "amd64";
  const config = {
    architecture,
    os: "linux",
    config: { Entrypoint: command },
    rootfs: { type: "layers", diff_ids: [`sha256:${digest}`] },
  };
  writeFileSync(join(work, "config.json"), JSON.stringify(config));
  const manifest = [{ Config: "config.json", RepoTags: [name], Layers: ["layer.tar"] }];
  writeFileSync(join(work, "manifest.json"), JSON.stringify(manifest));
  const archive = `${work}.tar`;
  await execa("tar", ["-C", work, "-cf", archive, "manifest.json", "config.json", "layer.tar"]);
  return archive;
}

/** The first container of each pod only waits. */
function pauseImage(directory: string): string {
  mkdirSync(directory);
  cpSync(busybox(), join(directory, "busybox"));
  // containerd starts the image's own command.
  symlinkSync("busybox", join(directory, "sleep"));
  return directory;
}

/** The root of an image that has BusyBox and nothing else. */
export function workloadImage(directory: string): string {
  mkdirSync(join(directory, "bin"), { recursive: true });
  for (const name of ["tmp", "run", "srv"]) mkdirSync(join(directory, name));
  chmodSync(join(directory, "tmp"), 0o1777);
  cpSync(busybox(), join(directory, "bin/busybox"));
  for (const applet of APPLETS) symlinkSync("busybox", join(directory, "bin", applet));
  return directory;
}

function busybox(): string {
  return join(unpacked("busybox-static"), "bin/busybox");
}
