/**
 * Main script of the single executable: runs the agent's script, which is an asset of it, with the code cache made from a
 * run of it. Node's own code cache for a main script holds no function that is compiled when it is first called.
 */
import { getAssetKeys, getRawAsset } from "node:sea";
import { CODE_CACHE_ASSET, SCRIPT_ASSET } from "./assets.ts";
import { compileAgent, runAgent } from "./compile.ts";

const source = Buffer.from(getRawAsset(SCRIPT_ASSET)).toString("latin1");
const codeCache = getAssetKeys().includes(CODE_CACHE_ASSET) ? new Uint8Array(getRawAsset(CODE_CACHE_ASSET)) : undefined;
// Bundled as CommonJS, of which these three are names.
runAgent(compileAgent(source, codeCache), require, __filename, __dirname);
