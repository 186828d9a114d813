// Usage: models.mjs NODE_MODULES. Reads custom resources as a JSON array, writes what their models say against each: "" is nothing.
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const places = {
  "monitoring.coreos.com/v1": "prometheus-operator/monitoring.coreos.com/v1",
  "keda.sh/v1alpha1": "keda/keda.sh/v1alpha1",
};
const complaints = [];
for (const object of JSON.parse(readFileSync(0, "utf8"))) {
  const place = `${process.argv[2]}/@kubernetes-models/${places[object.apiVersion]}/${object.kind}.js`;
  const Model = (await import(pathToFileURL(place)))[object.kind];
  try {
    new Model(object).validate();
    complaints.push("");
  } catch (error) {
    complaints.push(`${object.kind}: ${error.message}`);
  }
}
process.stdout.write(JSON.stringify(complaints));
