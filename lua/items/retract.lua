#!lua flags=allow-oom
-- Acknowledge items by their holders, or delete them by their owners and publishers, and hand the freed credit on.
-- ARGV: now revision frontend sent number retry | sender subids owner item token request
-- RETURNS: ok stale gone deleted | ok replayed item-not-found forbidden locked-by-another lock-lost
local refusal = partition.load()
if refusal then return refusal end
answers.rotate()

local function answer(row, holder, pool, subid)
  answers.give(row, holder)
  return {'ok', holder, pool, subid}
end

local results = judge.each(rows, function(row, verdict)
  owner.met(row.subids)
  if verdict == 'held' then
    ending.acknowledge(row.flight)
    return answer(row, row.flight.jid, pools.told(row.flight.subid))
  elseif verdict == 'waiting' then
    items.drop(row.position, row.entry)
    ordering.done(row.position)
    return answer(row, '')
  elseif verdict == 'replayed' then
    return {'replayed', row.answered}
  end
  return {verdict}
end)
return finish.reply(results, {}, call.ending_freed)
