#!lua flags=allow-oom
-- Readers say up to where they have what was handed to them, and get as much more.
-- KEYS: meta log index replaced parked ready delayed inflight deadlines held subscribers turns resting history handover tried sent journal unconfirmed retries readers reading outstanding heads keyed blocked selectors passed ranked ends grants usage ledger unsettled demand wanted
-- ARGV: now revision frontend sent number retry | subids position
-- RETURNS: ok stale gone deleted | ok not-subscribed offset-not-found
-- WRITES: meta log index replaced parked ready delayed inflight deadlines held subscribers turns resting history handover tried sent journal unconfirmed retries readers reading outstanding heads keyed blocked selectors passed ranked ends grants usage ledger unsettled demand wanted
--- @include budget finish
local refusal = partition.load()
if refusal then return refusal end
local results = budget.each(rows, function(row)
  local reader = readers.of(row.subids)
  if not reader then return {'not-subscribed'} end
  if positions.after(row.position, reader.position) then return {'offset-not-found'} end
  window.commit(reader, row.position)
  window.settle(reader)
  ending.touch(reader.subid)
  ending.arrived[reader.subid] = true
  return {'ok'}
end)
return finish.reply(results, {}, 0)
