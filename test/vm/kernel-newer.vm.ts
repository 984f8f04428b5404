import { kernelSuite } from "./cases/kernel-suite.ts";
import { newerSeries } from "./harness/provision.ts";

const series = newerSeries();
if (series !== undefined) kernelSuite(series);
