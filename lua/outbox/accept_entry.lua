#!lua
-- Store items that come from other nodes. A `ticket` admits each item once; it is remembered for `once_ms`, or until `expire_tickets`
-- says that the sending node knows of the arrival. An item keeps its id unless another item here has it or may get it; then the service
-- makes a new one, so that both stay. The items of schedules come in the same way: only these have hints.
-- ARGV: now revision frontend number retry dedupe dedupe_ms once_ms max_items node_full | item key by body ticket hints
-- RETURNS: ok stale gone deleted | ok(item) duplicate(item) node-full
local refusal = partition.load()
if refusal then return refusal end
enqueue.prepare(rows)
local added = 0

local function admit(row)
  row.once = ''
  if row.hints ~= '' then scheduling.read_request(row) end
  -- An item with the same id proves nothing: anybody may have published it.
  if dedupe_window.has(dedupe_window.HANDED, row.ticket) then return {'duplicate', row.item} end
  if enqueue.find(row.item) or enqueue.is_future_id(row) then row.item = '' end
  if not enqueue.room() then return {'node-full'} end
  added = added + 1
  dedupe_window.keep(dedupe_window.HANDED, row.ticket, tonumber(arg.once_ms))
  return {'ok', enqueue.append(row)}
end

local results = budget.each(rows, admit)
return respond.make(results, added)
