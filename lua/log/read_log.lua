#!lua flags=no-writes
-- Read the log from `start` on, whatever happened to the items: up to `limit` entries, cut at `max_bytes` of payload. A read for a
-- `group` requires ownership under the `fence` (EX11), or without a fence that nobody owns the group's reading (EX14).
-- ARGV: now revision number start limit max_bytes group fence
-- RETURNS: ok stale gone deleted | ok(gap earliest latest after entries(position item key publisher body)) superseded offset-not-found
local refusal = partition.load()
if refusal then return refusal end
if arg.group ~= '' then
  local known, mine = reader_ownership.get(arg.group), tonumber(arg.fence)
  if mine and not (known and known.fence == mine) or not mine and known and known.active then
    return respond.results({{'superseded'}})
  end
end
local position, gap = start_position.resolve(arg.start)
local began = position
local limit, bytes, found, more, full = tonumber(arg.limit), 0, {}, 0, false
-- A few at a time: entries beyond `max_bytes` are read in vain.
while position and not full do
  local read, ended = log_entries.range('(' .. position, '+', math.min(20, limit - #found + 1))
  for _, entry in ipairs(read) do
    bytes = bytes + #entry.body
    if #found == limit or (bytes > tonumber(arg.max_bytes) and #found > 0) then
      more, full = 1, true
      break
    end
    position = entry.log_id
    found[#found + 1] = {position, entry.item ~= '' and entry.item or positions.item_id(position), entry.key, entry.by,
      entry.body}
  end
  full = full or ended
end
-- In a log the last removed entry may be one that its publisher has deleted, beyond what was read: that is no gap here.
local trimmed = not call.partition_options.log_only or began and positions.after(call.partition_trim, began)
if found[1] and not trimmed and positions.after(call.partition_lost, position) then gap = 0 end
local first = redis.call('XRANGE', key.log, '-', '+', 'COUNT', 1)[1]
local told = position and {'ok', gap, first and first[1] or '', call.partition_tail, position, found} or {'offset-not-found'}
return respond.results({told}, 0, more)
