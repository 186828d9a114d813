-- Who may end a lock (docs/conformance.md), D4 to D11. The frontend decides the rows before them, which need no item.
local ack_rules = {}

-- Looks up the items of a batch of rows with one call per key.
function ack_rules.prepare(rows)
  local ids, placed, places = {}, {}, {}
  for i = 1, #rows do ids[i] = rows[i].item end
  local found = items.positions_of(ids)
  for i = 1, #rows do
    local row, position = rows[i], found[i]
    row.position, row.flight = position, false
    if position then placed[#placed + 1], places[#places + 1] = row, position end
  end
  local flying = inflight.get_many(places)
  for i = 1, #placed do
    local row, flight = placed[i], flying[i]
    -- An item with its publisher's id cannot be named by the id that the service would have given it.
    if flight and flight.item ~= row.item then row.position, flight = false, false end
    row.flight = flight
  end
end

local function was_holder(row)
  for _, subid in ipairs(attempt_history.of(row.position).holders) do
    if subscription_ids.covers(row.subids, subid) then return true end
  end
  return false
end

-- Returns `held`, `waiting` (not locked, and the requester may delete it), `replayed`, or the problem's code.
function ack_rules.verdict(row)
  local flight = row.flight
  local mine = flight and jids.covers(flight.jid, row.sender)
  -- A lock from before the owner's attach is void, whichever frontend or JID names it (EX11).
  local live = mine and not partition_owner.is_fenced(flight)
  if live and row.token == flight.token then return 'held' end
  row.answered = replay_cache.find(row)
  if row.answered then return 'replayed' end
  if not row.position then return 'item-not-found' end
  if mine then return live and row.token == '' and 'held' or 'lock-lost' end
  if flight then
    if row.owner == '1' or was_holder(row) or jids.is_publisher(row.sender, log_entries.get(flight.log_id)) then
      return 'locked-by-another'
    end
    return 'forbidden'
  end
  row.entry = items.waiting(row.position, row.item)
  if not row.entry then return 'item-not-found' end
  if was_holder(row) then return 'lock-lost' end
  if row.owner ~= '1' and not jids.is_publisher(row.sender, row.entry) then return 'forbidden' end
  -- A token refers to a lock and gives no other right; else a late worker would delete an item that it has lost (RX6).
  if row.token ~= '' then return 'lock-lost' end
  return 'waiting'
end

-- Decides each row in order; `act(row, verdict)` makes the changes and returns the row's reply. A row that names the item of an earlier
-- row sees that row's changes.
function ack_rules.each(rows, act)
  local met = {}
  ack_rules.prepare(rows)
  return budget.each(rows, function(row)
    if met[row.item] then
      write_buffer.flush()
      ack_rules.prepare({row})
    end
    met[row.item] = true
    return act(row, ack_rules.verdict(row))
  end)
end

-- Ends the locks of rows whose requesters hold them, by `act(row)`, which may return another reply and do nothing; returns the replies.
function ack_rules.end_locks(rows, act)
  return ack_rules.each(rows, function(row, verdict)
    partition_owner.renew_when_seen(row.subids)
    if verdict == 'held' then
      local refused = act(row)
      if refused then return refused end
      replay_cache.give(row, row.flight.jid)
      return {'ok', row.flight.jid, references.describe(row.flight)}
    elseif verdict == 'replayed' then
      return {'replayed', row.answered}
    end
    return {verdict == 'waiting' and 'lock-lost' or verdict}
  end)
end

-- Decides rows about different items, and acts only if none is refused. The verdicts alone may cost too much: large entries are read.
function ack_rules.all_or_none(rows, act)
  local verdicts = {}
  ack_rules.prepare(rows)
  for i, row in ipairs(rows) do
    if budget.exhausted() then return {{'refused', i, 'not-acceptable'}} end
    local verdict = ack_rules.verdict(row)
    if not (verdict == 'held' or verdict == 'waiting' or verdict == 'replayed') then return {{'refused', i, verdict}} end
    verdicts[i] = verdict
  end
  local results = {}
  for i, row in ipairs(rows) do results[i] = act(row, verdicts[i]) end
  return results
end
