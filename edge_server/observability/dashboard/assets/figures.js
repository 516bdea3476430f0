/** The figure that leads a run's page: accuracy, or another metric of what the network learns. */

import { fromZero, shareBounds } from "./charts.js";
import { percentText, ratioText, scoreText } from "./units.js";

const ACCURACY = { name: "accuracy", share: true, higher: true, where: "test" };
const OWN_DATA = "own data";

/** The metric {name, share, higher, where} that the server names; `where` is "test" or "own data". */
export const metricOf = (run) => run?.metric ?? ACCURACY;

/** The full model's figure of a round on the data that the metric names, or null. */
export const testedOf = ({ name, where }, line) => (where === OWN_DATA ? line.client_metrics : line.test_metrics)?.[name] ?? null;

/** `test accuracy`, or `own data accuracy` of the devices. */
export const nameOf = ({ name, where }) => `${where} ${name}`;

/** A figure as text: `97.12%` of a share, else `0.1234`. */
export const figureText = ({ share }, value) => (share ? percentText(value) : scoreText(value, 4));

/** The tested round with the best figure, or null. */
export function bestOf(metric, history) {
  const tested = history.filter((line) => testedOf(metric, line) !== null);
  const ahead = (one, other) => (metric.higher ? testedOf(metric, one) >= testedOf(metric, other) : testedOf(metric, one) <= testedOf(metric, other));
  return tested.reduce((best, line) => (best && ahead(best, line) ? best : line), null);
}

/** Title, formats and bounds of the chart of this metric. */
export const measureOf = (metric) => ({
  title: (metric.name === "accuracy" ? "Accuracy" : metric.name) + (metric.where === OWN_DATA ? `, ${OWN_DATA}` : ""),
  format: (value) => figureText(metric, value),
  tick: metric.share ? ratioText : scoreText,
  bounds: metric.share ? shareBounds : fromZero,
});
