import { CONNECTCONFORMANCE } from "./connectconformance/suite.ts";
import { CONSUMERS } from "./consumers/suite.ts";
import { H2SPEC } from "./h2spec/suite.ts";
import { ANSIBLE } from "./rsh/ansible.ts";
import { GIT } from "./rsh/git.ts";
import { RSYNC } from "./rsh/rsync.ts";
import type { Suite } from "./suite.ts";
import { TESTSSL } from "./tls/testssl.ts";

/** All suites, in the order in which they run. */
export const SUITES: readonly Suite[] = [CONNECTCONFORMANCE, H2SPEC, TESTSSL, RSYNC, GIT, ANSIBLE, CONSUMERS];
