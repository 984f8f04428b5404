import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { cp } from "node:fs/promises";
import { join } from "node:path";
import { describe, it } from "node:test";
import { execa } from "execa";
import { connect, type GuestClient } from "../../../src/node/client/index.ts";
import { standaloneDirectory } from "../../fixtures/bundles.ts";
import { testDirectory } from "../../fixtures/files.ts";
import { forAllTests } from "../../fixtures/for-all-tests.ts";
import { pythonPackages } from "../../fixtures/toolchains.ts";
import { Containerd, type ContainerSpec, workloadImage } from "./containerd.ts";

/** Brings the schemas of Kubernetes, and PyYAML. */
const VALIDATOR = "kubernetes-validate==1.37.0";
const KUBERNETES = "1.33";
const TOKEN = "token-of-the-pod-0123456789";
const PAGE = readFileSync(join(import.meta.dirname, "../../../docs/agent/kubernetes.md"), "utf8");
const MANIFESTS = Array.from(PAGE.matchAll(/^```yaml\n([^]*?)^```$/gm), ([, text = ""]) => text);

/** Validates a manifest strictly, and resolves with it as an object. */
async function validated(manifest: string): Promise<Pod> {
  const script = `
import json, sys, yaml, kubernetes_validate
pod = yaml.safe_load(sys.stdin)
kubernetes_validate.validate(pod, ${JSON.stringify(KUBERNETES)}, strict=True)
print(json.dumps(pod))`;
  const env = { PYTHONPATH: await pythonPackages(VALIDATOR) };
  const { stdout } = await execa("python3", ["-c", script], { input: manifest, env });
  return JSON.parse(stdout) as Pod;
}

/** The parts of a pod that the test runs. */
interface Pod {
  readonly spec: {
    readonly initContainers: readonly [Container];
    readonly containers: readonly [Container];
  };
}

interface Container {
  readonly name: string;
  readonly image: string;
  readonly command: readonly string[];
  readonly env?: readonly { readonly name: string; readonly value?: string }[];
  readonly volumeMounts: readonly { readonly name: string; readonly mountPath: string; readonly readOnly?: boolean }[];
  readonly readinessProbe?: Probe;
  readonly livenessProbe?: Probe;
}

interface Probe {
  readonly exec: { readonly command: readonly string[] };
}

const commandOf = (probe: Probe | undefined): readonly string[] => probe?.exec.command ?? assert.fail("no probe");

describe("the manifests of the Kubernetes page", () => {
  it("the documented Kubernetes manifests are valid, and an unknown field is rejected", async () => {
    assert.equal(MANIFESTS.length, 2);
    for (const manifest of MANIFESTS) await validated(manifest);
    await assert.rejects(validated(MANIFESTS[0]?.replace("mountPath", "mountpath") ?? ""), /mountpath/);
  });
});

describe(
  "the documented pod, run by containerd",
  { skip: process.getuid?.() === 0 ? false : "needs root" },
  async () => {
    const directory = forAllTests(await testDirectory());
    const runtime = await Containerd.start(directory.path);
    if (typeof runtime === "string") {
      it("the documented pod starts under containerd", { skip: runtime }, () => {});
      return;
    }
    forAllTests(runtime);
    const { initContainers, containers } = (await validated(MANIFESTS[0] ?? "")).spec;
    /** A container of the manifest, as kubelet describes it to the runtime. */
    const specOf = ({ name, image, command, env = [], volumeMounts }: Container): ContainerSpec => ({
      name,
      image,
      command,
      envs: env.map(({ name: key, value }) => ({ key, value: value ?? TOKEN })),
      mounts: volumeMounts.map(({ name: volume, mountPath, readOnly = false }) => {
        const host = directory.at(`volume-${volume}`);
        mkdirSync(host, { recursive: true });
        return { container_path: mountPath, host_path: host, readonly: readOnly };
      }),
    });
    const [init, main] = [initContainers[0], containers[0]];
    await cp(standaloneDirectory(), directory.at("agent-image/guest-agent"), { recursive: true });
    await runtime.addImage(init.image, directory.at("agent-image"));
    await runtime.addImage(main.image, workloadImage(directory.at("app-image")));
    await runtime.runPod();
    let id = "";
    const bridge = (): string[] => [...runtime.execWords(id), "/opt/guest-agent/guest-agent", "bridge"];
    const dial = (): GuestClient => {
      return connect({ bridge: bridge(), token: TOKEN });
    };

    it("the init container copies the agent to the volume and succeeds", async () => {
      assert.equal(await runtime.ended(await runtime.start(specOf(init))), 0, runtime.log(init.name));
    });

    it("the pod's probes succeed once the agent has started the workload", async () => {
      id = await runtime.start(specOf(main));
      for (const probe of [main.livenessProbe, main.readinessProbe]) {
        let code = await runtime.probe(id, commandOf(probe));
        while (code !== 0) {
          assert.equal((await runtime.status(id)).state, "CONTAINER_RUNNING", runtime.log(main.name));
          code = await runtime.probe(id, commandOf(probe));
        }
      }
    });

    it("commands and copies work through the container runtime's exec and the bridge", async () => {
      using client = dial();
      const { exitCode, stdout } = await client.run(["sh", "-c", "cat; env; exit 4"], { input: "hello\n" });
      assert.equal(exitCode, 4);
      assert.match(stdout, /^hello\n/);
      assert.doesNotMatch(stdout, /SVC_|token/);
      mkdirSync(directory.at("site/sub"), { recursive: true });
      writeFileSync(directory.at("site/sub/page"), "content\n");
      await client.files.upload(directory.at("site"), "/srv/site");
      assert.equal(await client.files.readFile("/srv/site/sub/page", "utf8"), "content\n");
      const { ran, frozen } = await client.snapshots.prepare();
      assert.deepEqual([ran, frozen], [false, false]);
    });

    it("the pod's agent rejects a wrong token", async () => {
      using client = connect({ bridge: bridge(), token: "guess" });
      await assert.rejects(client.health(), { status: "UNAUTHENTICATED" });
    });

    it("SIGTERM reaches the pod's workload, and the container exits with its status", async () => {
      await runtime.stop(id, 30);
      assert.equal(await runtime.ended(id), 3, runtime.log(main.name));
      assert.match(runtime.log(main.name), /"event":"agent_ended".*"status":3/);
    });
  },
);
