"""LangGraph over langchain-openai: a graph of three agents, an agent with an optional tool, streams, schemas."""

from __future__ import annotations

from typing import Any

from checks import BRIEFS, TASK, TURNS, Target, main, reused
from langchain_core.messages import HumanMessage, SystemMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import create_react_agent
from pydantic import BaseModel

NAME = "langgraph"


class Price(BaseModel):
    """A price."""

    price: int
    sure: bool


def price(item: str) -> str:
    """The price of an item."""
    return "25"


def model(target: Target, check: str, agent: str = "ann", most: int = 24) -> ChatOpenAI:
    url = target.of(f"{NAME}-{check}", agent)
    return ChatOpenAI(model=target.model, base_url=url, api_key=target.key, temperature=0, max_tokens=most)


def talk(target: Target) -> dict[str, Any]:
    def node(agent: str) -> Any:
        llm = model(target, "talk", agent)
        return lambda state: {"messages": [llm.invoke([SystemMessage(BRIEFS[agent]), *state["messages"]])]}

    graph, names = StateGraph(MessagesState), list(BRIEFS)
    for agent in names:
        graph.add_node(agent, node(agent))
    for one, other in zip([START, *names], names, strict=False):
        graph.add_edge(one, other)
    graph.add_conditional_edges(names[-1], lambda state: END if len(state["messages"]) > TURNS else names[0])
    app = graph.compile()
    return reused(target, lambda: len(app.invoke({"messages": [HumanMessage(TASK)]})["messages"]) - 1)


def tools(target: Target) -> dict[str, Any]:
    """By default the model may call a tool or not; a required call is answered and the conversation continues."""
    agent = create_react_agent(model(target, "tools", most=64), [price], prompt=BRIEFS["ann"])
    said = agent.invoke({"messages": [("user", "What is the price of the boat?")]})["messages"]
    said = agent.invoke({"messages": [*said, ("user", "And of the oar?")]})["messages"]
    asked = HumanMessage("What is the price of the boat?")
    called = model(target, "tools", most=64).bind_tools([price], tool_choice="required").invoke([asked])
    results = [ToolMessage("25", tool_call_id=call["id"]) for call in called.tool_calls]
    model(target, "tools").bind_tools([price]).invoke([asked, called, *results])
    return {"turns": sum(m.type == "human" for m in said), "called": called.tool_calls[0]["name"]}


def stream(target: Target) -> int:
    agent = create_react_agent(model(target, "stream"), [], prompt=BRIEFS["ann"])
    return len(list(agent.stream({"messages": [("user", TASK)]}, stream_mode="messages")))


def schema(target: Target) -> list[Any]:
    ways = ("json_schema", "function_calling")
    asked = (model(target, "schema", most=96).with_structured_output(Price, method=way) for way in ways)
    return [each.invoke("Name a price.").model_dump() for each in asked]


main(talk, tools, stream, schema)
