import assert from "node:assert/strict";
import { describe, it } from "node:test";
import { type Environment, SessionEnvironment } from "../../../src/agent/session/index.ts";

const BOOTSTRAP = ["SVC_INSTANCE_TOKEN", "SVC_WORKLOAD_SOCKET", "SVC_PROCESS_SPEC"];

function session(inherited: readonly (string | Buffer)[], processEnv: Record<string, string> = {}): SessionEnvironment {
  return new SessionEnvironment({
    inherited: inherited.map((entry) => Buffer.from(entry as string)),
    bootstrapNames: BOOTSTRAP,
    processEnv: new Map(Object.entries(processEnv)),
    workloadSocket: "/run/workload.sock",
  });
}

const NOT_REPLACED = new Map<string, string>();

function text(entries: Environment): string[] {
  return entries.map((entry) => Buffer.from(entry as string).toString("latin1"));
}

function forCommand(environment: SessionEnvironment, requested: Record<string, string> = {}): string[] {
  return text(environment.with(new Map(Object.entries(requested)), NOT_REPLACED));
}

function forWorkload(environment: SessionEnvironment): string[] {
  return text(environment.with(environment.ofWorkload, NOT_REPLACED));
}

describe("the environment of a command", () => {
  it("holds what the agent inherited, in its order", () => {
    assert.deepEqual(forCommand(session(["B=2", "A=1"])), ["B=2", "A=1"]);
  });

  it("holds no bootstrap variable, whatever its form", () => {
    const environment = session(["SVC_INSTANCE_TOKEN=t", "A=1", "SVC_PROCESS_SPEC", "SVC_WORKLOAD_SOCKET=/s"]);
    assert.deepEqual(forCommand(environment), ["A=1"]);
  });

  it("keeps a variable whose name only begins like a bootstrap variable's", () => {
    assert.deepEqual(forCommand(session(["SVC_INSTANCE_TOKENS=x", "svc_instance_token=y"])), [
      "SVC_INSTANCE_TOKENS=x",
      "svc_instance_token=y",
    ]);
  });

  it("has Process.env over what was inherited, every duplicate included", () => {
    assert.deepEqual(forCommand(session(["A=1", "B=2", "A=3"], { A: "new" })), ["B=2", "A=new"]);
  });

  it("has the request's variables last", () => {
    assert.deepEqual(forCommand(session(["A=1"], { A: "2", B: "2" }), { A: "3" }), ["B=2", "A=3"]);
  });

  it("delivers a bootstrap variable that the request names unchanged", () => {
    const environment = session(["SVC_INSTANCE_TOKEN=agent"]);
    assert.deepEqual(forCommand(environment, { SVC_INSTANCE_TOKEN: "mine", SVC_WORKLOAD_SOCKET: "/x" }), [
      "SVC_INSTANCE_TOKEN=mine",
      "SVC_WORKLOAD_SOCKET=/x",
    ]);
  });

  it("delivers a bootstrap variable that Process.env names: it is an explicit grant", () => {
    assert.deepEqual(forCommand(session(["SVC_INSTANCE_TOKEN=agent"], { SVC_INSTANCE_TOKEN: "granted" })), [
      "SVC_INSTANCE_TOKEN=granted",
    ]);
  });

  it("never holds the workload socket, not even where Process.env names it", () => {
    assert.deepEqual(forCommand(session(["A=1"], { SVC_WORKLOAD_SOCKET: "/spec" })), ["A=1"]);
  });

  it("keeps inherited bytes that are not UTF-8, entries without '=' and duplicates as they are", () => {
    const raw = Buffer.from([0x58, 0x3d, 0xff, 0xfe]);
    assert.deepEqual(forCommand(session([raw, "NOEQUALS", "D=1", "D=2", "=odd"])), [
      "X=\xff\xfe",
      "NOEQUALS",
      "D=1",
      "D=2",
      "=odd",
    ]);
  });

  it("keeps line breaks, empty values and further '=' in values", () => {
    assert.deepEqual(forCommand(session([]), { A: "x\ny", B: "", C: "a=b" }), ["A=x\ny", "B=", "C=a=b"]);
  });
});

describe("replacements", () => {
  it("take the place of what is only inherited, and not of what Process.env or the request names", () => {
    const environment = session(["HOME=/root", "A=1", "SHELL=/bin/bash", "USER=root"], { USER: "spec" });
    const replaced = new Map([
      ["HOME", "/home/app"],
      ["SHELL", undefined],
      ["USER", "app"],
      ["NEW", "x"],
    ]);
    assert.deepEqual(text(environment.with(new Map([["NEW", "request"]]), replaced)), [
      "A=1",
      "HOME=/home/app",
      "USER=spec",
      "NEW=request",
    ]);
    assert.deepEqual(text(environment.with(environment.ofWorkload, replaced)), [
      "A=1",
      "HOME=/home/app",
      "NEW=x",
      "USER=spec",
      "SVC_WORKLOAD_SOCKET=/run/workload.sock",
    ]);
    assert.deepEqual(forCommand(environment), ["HOME=/root", "A=1", "SHELL=/bin/bash", "USER=spec"]);
  });
});

describe("the environment of the workload", () => {
  it("holds SVC_WORKLOAD_SOCKET after its own variables", () => {
    assert.deepEqual(forWorkload(session(["A=1", "SVC_WORKLOAD_SOCKET=/old"], { B: "2" })), [
      "A=1",
      "B=2",
      "SVC_WORKLOAD_SOCKET=/run/workload.sock",
    ]);
  });

  it("has the agent's socket even where Process.env names another", () => {
    assert.deepEqual(forWorkload(session([], { SVC_WORKLOAD_SOCKET: "/spec" })), [
      "SVC_WORKLOAD_SOCKET=/run/workload.sock",
    ]);
  });
});
