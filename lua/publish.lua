#!lua
-- Append items to the log, or replace those with the same ids, and hand out what there is credit for.
-- KEYS: meta log index replaced parked ready delayed inflight deadlines held subscribers turns resting history handover sent seen journal unconfirmed retries readers reading outstanding shares heads keyed blocked selectors passed ranked ends
-- ARGV: now revision frontend sent number retry wants dedupe dedupe_ms once_ms max_items node_full | item key by body once subids hints
-- RETURNS: ok stale gone deleted | ok duplicate node-full forbidden item-id-invalid
-- WRITES: meta log index replaced parked ready delayed inflight deadlines held turns resting history handover sent seen journal unconfirmed retries readers reading outstanding shares heads keyed blocked selectors passed ranked ends
--- @include finish intake hints
local refusal = partition.load()
if refusal then return refusal end

intake.prepare(rows)
local results, added = {}, 0
for i, row in ipairs(rows) do
  if row.hints ~= '' then hints.begin(row) end
  if not intake.admits(row) then
    results[i] = {'forbidden'}
  elseif intake.repeats(row) then
    results[i] = {'duplicate', row.item}
  elseif intake.known[row.item] and not partition.log_only then
    intake.replace(row)
    results[i] = {'ok', row.item}
  elseif intake.foretells(row) then
    results[i] = {'item-id-invalid'}
  elseif not intake.room() then
    results[i] = {'node-full'}
  else
    results[i] = {'ok', intake.append(row)}
    added = added + 1
  end
end
return finish.reply(results, {}, added)
