/**
 * Main script of the single executable: runs the agent's script, an asset, with the code cache that code-cache.ts made.
 * Node's own code cache for a main script would not contain the functions that V8 compiles at their first call.
 */
import { getAssetKeys, getRawAsset } from "node:sea";
import { CODE_CACHE_ASSET, compileAgent, runAgent, SCRIPT_ASSET } from "./compile.ts";

const source = Buffer.from(getRawAsset(SCRIPT_ASSET)).toString("latin1");
const codeCache = getAssetKeys().includes(CODE_CACHE_ASSET) ? new Uint8Array(getRawAsset(CODE_CACHE_ASSET)) : undefined;
// The bundle is CommonJS, which defines these three names.
runAgent(compileAgent(source, codeCache), require, __filename, __dirname);
