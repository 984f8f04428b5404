import { kernelSuite } from "../cases/kernel-suite.ts";

kernelSuite("6.12");
