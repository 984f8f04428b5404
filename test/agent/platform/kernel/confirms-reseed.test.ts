import assert from "node:assert/strict";
import { it } from "node:test";
import { confirmsReseed } from "../../../../src/agent/platform/random-device.ts";

it("believes a forced reseed of kernels since 5.18 and of those that are known to have got its generator", () => {
  const answers: Readonly<Record<string, boolean>> = {
    "6.18.44": true,
    "10.0": true,
    "5.18.0-rc1": true,
    "5.18.0": true,
    "5.17.15": false,
    "5.15.44-custom": true,
    "5.15.43": false,
    "5.15.0-91-generic": false,
    "5.10.119": true,
    "5.10.118": false,
    "5.10": false,
    "4.19.320": false,
    "3.10.0-1160.el7.x86_64": false,
    "": false,
    custom: false,
  };
  for (const [release, answer] of Object.entries(answers)) assert.equal(confirmsReseed(release), answer, release);
});
