/** A model: its network, method and board, read from the two files of a model directory. */

import { nameOf } from "./methods.js";
import { buildNetwork } from "./network.js";
import { readSafetensors } from "./safetensors.js";
import { boardOf } from "./sudoku.js";

/**
 * @typedef {object} Config the parts of config.json that are read
 * @property {import("./network.js").Architecture} model
 * @property {import("./methods.js").Method} method
 * @property {{ name: string }} task
 */
/**
 * @typedef {object} Model
 * @property {string} name
 * @property {string} methodName
 * @property {string} task
 * @property {import("./methods.js").Method} method
 * @property {import("./network.js").Network} net
 * @property {import("./sudoku.js").Board} board
 */

/**
 * Return the network and the method of a model of any task.
 *
 * @param {ArrayBuffer} bytes of model.safetensors
 * @param {Config} config config.json, parsed
 * @param {(numFloats: number, numArrays: number) => import("./kernel.js").Kernel} [makeKernel]
 * @throws {Error} the weights are not of this config.
 */
export function loadNetwork(bytes, { model, method, task }, makeKernel) {
  if (!model?.size || !method || !task) {
    throw new Error(
      "config.json: has no transformer, method or task. Use a model directory of latent-tokens.",
    );
  }
  return { method, net: buildNetwork(readSafetensors(bytes), model, makeKernel) };
}

/**
 * Return a model of Sudoku boards.
 *
 * @param {ArrayBuffer} bytes of model.safetensors
 * @param {Config} config config.json, parsed
 * @param {string} [name] the name that traces report
 * @param {(numFloats: number, numArrays: number) => import("./kernel.js").Kernel} [makeKernel]
 * @returns {Model}
 * @throws {Error} the weights are not of this config, or its task is not a Sudoku board.
 */
export function loadModel(bytes, config, name = config.task?.name, makeKernel) {
  const { net, method } = loadNetwork(bytes, config, makeKernel);
  const { model, task } = config;
  const board = boardOf(task.name, model.vocab_size, model.max_length);
  return { name, methodName: nameOf(method), task: task.name, method, net, board };
}
